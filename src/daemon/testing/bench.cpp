#include "daemon/testing/bench.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/paths.h"
#include "wire/control.h"

extern char** environ;

namespace berth::daemon {
namespace {

constexpr int kWatchdog = 30000;  // milliseconds; nothing here takes a tenth of it

std::string nvml_uuid(size_t device) {
  std::string hex = device_uuid(device);
  return "GPU-" + hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" + hex.substr(16, 4) + "-" +
         hex.substr(20);
}

class FakeSource : public GpuSource {
 public:
  explicit FakeSource(std::shared_ptr<FakeGpus> gpus) : gpus_(std::move(gpus)) {}
  Result<std::vector<GpuInfo>> open() override {
    std::lock_guard lock(gpus_->mutex);
    std::vector<GpuInfo> infos;
    for (size_t i = 0; i < gpus_->devices.size(); ++i) 
      infos.push_back({nvml_uuid(i), "Fake", gpus_->devices[i].total, gpus_->devices[i].compute_mode});
    if (infos.empty()) return Error{"no_device", "no fake device"};
    return infos;
  }
  Result<std::vector<GpuReading>> read() override {
    std::lock_guard lock(gpus_->mutex);
    ++gpus_->readings;
    if (gpus_->fails) return Error{"internal", "the fake fails"};
    std::vector<GpuReading> readings;
    for (const auto& device : gpus_->devices) {
      GpuReading reading;
      reading.used_bytes = device.by_driver;
      reading.compute_mode = device.compute_mode;
      for (auto [pid, bytes] : device.processes) {
        reading.used_bytes += bytes;
        reading.processes.push_back({pid, bytes});
      }
      readings.push_back(std::move(reading));
    }
    return readings;
  }
  void rest() override {
    std::lock_guard lock(gpus_->mutex);
    ++gpus_->rests;
  }
  std::string describe() const override { return "fake"; }

 private:
  std::shared_ptr<FakeGpus> gpus_;
};

bool readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, kWatchdog) == 1;
}

}  // namespace

std::string device_uuid(size_t device) {
  char text[33];
  std::snprintf(text, sizeof text, "00112233445566778899%08x%04x", static_cast<unsigned>(::getpid()), static_cast<unsigned>(device & 0xffff));
  return text;
}

std::unique_ptr<GpuSource> make_fake_source(std::shared_ptr<FakeGpus> gpus) {
  return std::make_unique<FakeSource>(std::move(gpus));
}

bool eventually(const std::function<bool()>& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Program::Program(const std::string& socket) {
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) std::abort();
  UniqueFd child_in(to[0]), child_out(from[1]);
  in_.reset(to[1]);
  out_.reset(from[0]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, child_in.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, child_out.get(), 1);
  std::string path = executable_folder() + "/fake_guest";
  char* argv[] = {path.data(), const_cast<char*>(socket.c_str()), nullptr};
  if (::posix_spawn(&pid, path.c_str(), &actions, nullptr, argv, environ) != 0)
    ADD_FAILURE() << "cannot start " << path;
  ::posix_spawn_file_actions_destroy(&actions);
  prefix_ = socket + ".pipe";
}

Program& Program::operator=(Program&& other) noexcept {
  end();
  pid = std::exchange(other.pid, 0);
  in_ = std::move(other.in_);
  out_ = std::move(other.out_);
  prefix_ = other.prefix_;
  return *this;
}

void Program::tell(const std::string& line) {
  std::string text = line + "\n";
  if (::write(in_.get(), text.data(), text.size()) < 0) ADD_FAILURE() << "the program is gone";
}

std::string Program::hear() {
  std::string text;
  for (char c; readable(out_.get()) && ::read(out_.get(), &c, 1) == 1;) {
    if (c == '\n') return text;
    text += c;
  }
  return "nothing more";
}

std::string Program::say(const std::string& line) {
  tell(line);
  return hear();
}

Program Program::spawn(const std::string& how) {
  static std::atomic<int> number{0};
  Program program;
  std::string prefix = prefix_ + std::to_string(++number);
  ::mkfifo((prefix + ".in").c_str(), 0600);
  ::mkfifo((prefix + ".out").c_str(), 0600);
  tell("spawn " + prefix + " " + how);
  program.in_.reset(::open((prefix + ".in").c_str(), O_WRONLY | O_CLOEXEC));
  program.out_.reset(::open((prefix + ".out").c_str(), O_RDONLY | O_CLOEXEC));
  program.prefix_ = prefix_;
  std::string here = program.hear();
  program.pid = here.starts_with("here ") ? std::stoi(here.substr(5)) : 0;
  hear();
  return program;
}

void Program::end(int signal) {
  if (pid <= 0) return;
  ::kill(pid, signal);
  ::waitpid(pid, nullptr, 0);  // fails for one that is another program's child
  pid = 0;
}

Command::Command(const std::string& socket) : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    ADD_FAILURE() << "cannot connect to " << socket;
}

void Command::send(const Json& request) {
  std::string packet = wire::control_packet(wire::MessageType::control_request, request.dump());
  EXPECT_EQ(::send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
}

bool Command::receive(std::string* text, bool* event, bool* whole) {
  std::vector<char> buffer(wire::kMaxPacket);
  if (!readable(fd_.get())) return false;
  ssize_t size = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  wire::ControlPacket packet;
  if (size <= 0 || !wire::parse_control_packet({buffer.data(), static_cast<size_t>(size)}, &packet)) return false;
  *text = packet.text;
  *event = packet.type == wire::MessageType::control_event;
  *whole = packet.pieces_left == 0;
  return true;
}

Json Command::reply() {
  std::string whole_text, text;
  for (bool event, whole; receive(&text, &event, &whole);) {
    if (event) {
      events.push_back(Json::parse(text));
      continue;
    }
    whole_text += text;
    if (whole) return Json::parse(whole_text);
  }
  return {{"lost", true}};
}

Json Command::ask(const Json& request) {
  send(request);
  return reply();
}

Json Command::event() {
  if (events.empty()) {
    std::string text;
    bool event = false, whole = false;
    if (!receive(&text, &event, &whole) || !event) return {{"lost", true}};
    return Json::parse(text);
  }
  Json first = events.front();
  events.erase(events.begin());
  return first;
}

DaemonTest::DaemonTest() {
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // as `berth run` is
  socket_ = place_.file("berth.sock");
  settings_.socket = socket_;
  settings_.state_file = place_.file("berth.db");
  settings_.idle_seconds = 0;
}

DaemonTest::~DaemonTest() {
  if (daemon_) stop();
}

void DaemonTest::start() {
  loop_ = std::make_unique<asio::io_context>(1);
  daemon_ = std::make_unique<Daemon>(*loop_, settings_, make_fake_source(gpus_));
  auto status = daemon_->open();
  ASSERT_TRUE(status.ok()) << status.error().message;
  thread_ = std::thread([this] { loop_->run(); });
}

void DaemonTest::stop() {
  asio::post(*loop_, [this] { daemon_->stop(); });
  thread_.join();
  daemon_.reset();
  loop_.reset();
}

Json DaemonTest::admit(Command& command, const Json& more) {
  Json request = {{"op", "admit"}, {"command", {"python3", "train.py"}}};
  if (more.is_object()) request.update(more);
  return command.ask(request);
}

DaemonTest::Job DaemonTest::job(const Json& more) {
  Job job;
  job.command = std::make_unique<Command>(socket_);
  job.admitted = admit(*job.command, more);
  EXPECT_TRUE(job.admitted.contains("job")) << job.admitted;
  job.root = Program(socket_);
  Json started = job.command->ask({{"op", "start"}, {"job", job.admitted.value("job", 0)}, {"pid", job.root.pid}});
  EXPECT_EQ(started, Json::object());
  return job;
}

Json DaemonTest::ps(bool all) { return Command(socket_).ask({{"op", "ps"}, {"all", all}}); }

Json DaemonTest::job_in_ps(const std::string& name, bool all) {
  Json whole = ps(all);
  for (const Json& entry : whole["jobs"])
    if (entry["name"] == name) return entry;
  return nullptr;
}

uint64_t DaemonTest::used(const std::string& name, const char* what) {
  Json entry = job_in_ps(name);
  return entry.is_object() && !entry["devices"].empty() ? entry["devices"][0][what].get<uint64_t>() : ~0ull;
}

std::vector<Json> DaemonTest::events(const std::string& kind) {
  std::vector<Json> found;
  Json whole = Command(socket_).ask({{"op", "events"}});
  for (const Json& event : whole["events"])
    if (event["kind"] == kind) found.push_back(event);
  return found;
}

}  // namespace berth::daemon
