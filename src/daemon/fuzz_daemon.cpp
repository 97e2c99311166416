#include "daemon/fuzz_daemon.h"

#include <sys/socket.h>

#include "daemon/daemon.h"
#include "policy/accounts.h"

namespace berth::daemon {
namespace {

class OneGpu : public GpuSource {
 public:
  Result<std::vector<GpuInfo>> open() override {
    return std::vector<GpuInfo>{{"GPU-00112233-4455-6677-8899-aabbccddeeff", "Fake", 16ull << 30}};
  }
  Result<std::vector<GpuReading>> read() override { return std::vector<GpuReading>(1); }
  std::string describe() const override { return "fake"; }
};

Settings settings(int gpus) {
  Settings settings;
  settings.socket = "/tmp/berth-fuzz-" + std::to_string(::getpid()) + "-" + std::to_string(gpus) + ".sock";
  settings.state_file = ":memory:";
  settings.system = true;  // this process then has a default job
  settings.config.keep_events = 16;
  settings.config.default_limits.max_jobs = 8;
  return settings;
}

void check(const policy::State& state) {
  for (const policy::Device& device : state.devices)
    if (device.used > device.total) __builtin_trap();
  for (const auto& [id, job] : state.jobs) {
    uint64_t sum = 0;
    for (const auto& [number, client] : state.clients)
      if (client.job == id) sum += policy::held(client.holdings[0]);
    if (sum != job.devices[0].used) __builtin_trap();
    uint64_t parts = 0;
    for (const policy::VirtualDevice& part : job.virtual_devices) parts += part.used;
    if (!job.virtual_devices.empty() && parts != sum) __builtin_trap();
  }
}

}  // namespace

struct FuzzedDaemon::Parts {
  explicit Parts(int gpus) : daemon(loop, settings(gpus), std::make_unique<OneGpu>()) {}
  asio::io_context loop{1};
  Daemon daemon;
};

FuzzedDaemon::FuzzedDaemon(int gpus) : parts_(std::make_unique<Parts>(gpus)) {
  if (!parts_->daemon.open()) __builtin_trap();
  if (gpus > 0) admit(gpus);
}

void FuzzedDaemon::admit(int gpus) {
  AdmitOrder order;
  order.request.uid = ::getuid();
  order.request.user = "fuzzer";
  order.request.command = {"fuzzer"};
  order.request.memory = "2G";
  order.request.gpus = gpus;
  order.runner = read_process(::getpid())->id;
  bool admitted = false;
  order.reply = [&admitted](Result<JobId> job) {
    if (!job) __builtin_trap();
    admitted = true;
  };
  JobId queued = 0;
  parts_->daemon.jobs.admit(std::move(order), &queued);
  while (!admitted) parts_->loop.run_one();
}

FuzzedDaemon::~FuzzedDaemon() = default;

UniqueFd FuzzedDaemon::connect() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) __builtin_trap();
  parts_->daemon.serve(UniqueFd(ends[0]));
  return UniqueFd(ends[1]);
}

void FuzzedDaemon::send(const UniqueFd& fd, std::string_view packet) {
  if (::send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return;
  turn();
  char answer[4096];
  while (::recv(fd.get(), answer, sizeof answer, MSG_DONTWAIT) > 0) {
  }
}

void FuzzedDaemon::turn() {
  if (parts_->loop.stopped()) parts_->loop.restart();  // `stop` is an operation
  parts_->loop.poll();
  check(parts_->daemon.state);
}

}  // namespace berth::daemon
