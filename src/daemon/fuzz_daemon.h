// A whole daemon for fuzz targets: fake devices, no file, one connection an input.
#pragma once
#include <sys/socket.h>

#include <memory>
#include <string_view>

#include "daemon/daemon.h"
#include "policy/accounts.h"

namespace berth::daemon {

class OneGpu : public GpuSource {
 public:
  Result<std::vector<GpuInfo>> open() override {
    return std::vector<GpuInfo>{{"GPU-00112233-4455-6677-8899-aabbccddeeff", "Fake", 16ull << 30}};
  }
  Result<std::vector<GpuReading>> read() override { return std::vector<GpuReading>(1); }
  std::string describe() const override { return "fake"; }
};

class FuzzedDaemon {
 public:
  FuzzedDaemon() {
    Settings settings;
    settings.socket = "/tmp/berth-fuzz-" + std::to_string(::getpid()) + ".sock";
    settings.state_file = ":memory:";
    settings.system = true;  // this process then has a default job
    settings.config.keep_events = 16;
    settings.config.default_limits.max_jobs = 8;
    daemon_ = std::make_unique<Daemon>(loop_, settings, std::make_unique<OneGpu>());
    if (!daemon_->open()) __builtin_trap();
  }

  // The sender's end of a new connection.
  UniqueFd connect() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) __builtin_trap();
    daemon_->serve(UniqueFd(ends[0]));
    return UniqueFd(ends[1]);
  }

  void send(const UniqueFd& fd, std::string_view packet) {
    if (::send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return;
    turn();
    char answer[4096];
    while (::recv(fd.get(), answer, sizeof answer, MSG_DONTWAIT) > 0) {
    }
  }

  void turn() {
    if (loop_.stopped()) loop_.restart();  // `stop` is an operation
    loop_.poll();
    check();
  }

 private:
  // What must hold whatever clients send.
  void check() const {
    for (const policy::Device& device : daemon_->state.devices)
      if (device.used > device.total) __builtin_trap();
    for (const auto& [id, job] : daemon_->state.jobs) {
      uint64_t sum = 0;
      for (const auto& [number, client] : daemon_->state.clients)
        if (client.job == id) sum += policy::held(client.holdings[0]);
      if (sum != job.devices[0].used) __builtin_trap();
    }
  }

  asio::io_context loop_{1};
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace berth::daemon
