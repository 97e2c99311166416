#include "client/held_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/paths.h"

namespace berth::client {
namespace {

constexpr char kReady = 'R', kFault = 'F', kNoExec = 'E';

// What the child says: a letter, then text. "" when it has closed the pipe.
std::string read_report(int fd) {
  std::string text(1024, '\0');
  ssize_t got;
  do got = ::read(fd, text.data(), text.size());
  while (got < 0 && errno == EINTR);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

[[noreturn]] void end_child(int report, char letter, const std::string& text) {
  std::string whole = letter + text;
  ssize_t written = ::write(report, whole.data(), whole.size());
  ::_exit(written > 0 ? 125 : 124);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// In the child. The parent has one thread, so allocating here is safe.
[[noreturn]] void wait_and_execute(const Launch& launch, const SignalIntake& signals, int gate, int report) {
  if (launch.isolation)
    if (auto done = enter_isolation(*launch.isolation); !done) end_child(report, kFault, done.error().message);
  if (::write(report, &kReady, 1) != 1) ::_exit(125);
  char go;
  ssize_t got;
  do got = ::read(gate, &go, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) ::_exit(125);  // the parent has gone
  auto argv = pointers(launch.argv), environment = pointers(launch.environment);
  signals.restore();
  ::execvpe(launch.path.c_str(), argv.data(), environment.data());
  int error = errno;
  end_child(report, kNoExec, std::string(1, error == ENOENT || error == ENOTDIR ? 'n' : 'x') + std::strerror(error));
}

}  // namespace

HeldChild::HeldChild(pid_t pid, UniqueFd gate, UniqueFd report)
    : pid_(pid), gate_(std::move(gate)), report_(std::move(report)) {}

HeldChild::~HeldChild() {
  if (!gate_) return;  // gone, or moved from
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<HeldChild> HeldChild::hold(const Launch& launch, const SignalIntake& signals) {
  int gate[2], report[2];
  if (::pipe2(gate, O_CLOEXEC) != 0 || ::pipe2(report, O_CLOEXEC) != 0)
    return Error{"internal", std::string("cannot make a pipe: ") + std::strerror(errno)};
  UniqueFd gate_in(gate[0]), gate_out(gate[1]), report_in(report[0]), report_out(report[1]);
  pid_t pid = ::fork();
  if (pid < 0) return Error{"internal", std::string("cannot start a process: ") + std::strerror(errno)};
  if (pid == 0) {
    gate_out.reset();
    report_in.reset();
    wait_and_execute(launch, signals, gate_in.get(), report_out.get());
  }
  report_out.reset();
  HeldChild child(pid, std::move(gate_out), std::move(report_in));
  std::string word = read_report(child.report_.get());
  if (!word.empty() && word[0] == kReady) return child;
  return Error{"internal", word.size() > 1 ? word.substr(1) : "the process ended before its program was started"};
}

Status HeldChild::go() {
  char go = 1;
  ssize_t written = ::write(gate_.get(), &go, 1);
  std::string word = written == 1 ? read_report(report_.get()) : "";
  gate_.reset();
  if (word.size() < 2) return Ok{};  // closed by exec, or the child was ended by somebody: its status tells
  ::waitpid(pid_, nullptr, 0);
  return Error{word[1] == 'n' ? "not_found" : "not_executable", word.substr(2)};
}

std::string runtime_alias_path() { return library_folder() + "/shim/libberth_cudart.so"; }

std::vector<std::string> program_environment(const std::optional<IsolationPlan>& isolation,
                                             const std::optional<std::string>& visible_devices, int gpus) {
  const bool alias = gpus > 0 && ::access(runtime_alias_path().c_str(), R_OK) == 0;
  std::string path = library_folder() + "/shim", preload = runtime_alias_path();
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry, name = text.substr(0, text.find('=') + 1), value = text.substr(name.size());
    if (name == "LD_LIBRARY_PATH=") {
      if (!value.empty()) path += ":" + std::string(value);
    } else if (name == "BERTH_DRIVER=" && isolation && !value.empty()) {
      result.push_back("BERTH_DRIVER=" + isolation->meeting_folder + "/real/libcuda.so.1");
    } else if (name == "LD_PRELOAD=" && alias) {
      if (!value.empty()) preload += ":" + std::string(value);
    } else if (name != "BERTH_GPUS=" && !(name == "CUDA_VISIBLE_DEVICES=" && visible_devices)) {
      result.emplace_back(text);
    }
  }
  result.push_back("LD_LIBRARY_PATH=" + path);
  if (alias) result.push_back("LD_PRELOAD=" + preload);
  if (gpus > 0) result.push_back("BERTH_GPUS=" + std::to_string(gpus));
  if (visible_devices) result.push_back("CUDA_VISIBLE_DEVICES=" + *visible_devices);
  return result;
}

}  // namespace berth::client
