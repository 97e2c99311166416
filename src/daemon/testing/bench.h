// What the daemon's tests share: a fake source of readings, a daemon on a thread of its own, programs that attach to
// it, and a command's side of a conversation.
#pragma once
#include <gtest/gtest.h>

#include <asio/io_context.hpp>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/test_folder.h"
#include "daemon/daemon.h"

namespace berth::daemon {

inline constexpr uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;
// The fake device's UUID as fake_guest takes it. One for each test process: daemons lock devices machine-wide by UUID.
std::string device_uuid(size_t device = 0);

// One device of 16 GiB unless told otherwise. Shared by test and worker, hence the lock.
class FakeGpus {
 public:
  struct Device {
    uint64_t total = 16 * kGiB, by_driver = 0;
    std::map<pid_t, uint64_t> processes;
    policy::ComputeMode compute_mode = policy::ComputeMode::shared;
  };
  std::vector<Device> devices = std::vector<Device>(1);
  bool fails = false;
  int readings = 0, rests = 0;

  void set(pid_t pid, uint64_t bytes, size_t device = 0) {
    std::lock_guard lock(mutex);
    devices[device].processes[pid] = bytes;
  }
  void remove(pid_t pid) {
    std::lock_guard lock(mutex);
    for (Device& device : devices) device.processes.erase(pid);
  }
  int count_readings() {
    std::lock_guard lock(mutex);
    return readings;
  }
  int count_rests() {
    std::lock_guard lock(mutex);
    return rests;
  }
  std::mutex mutex;
};
std::unique_ptr<GpuSource> make_fake_source(std::shared_ptr<FakeGpus> gpus);

// True as soon as `condition` is; false after ten seconds.
bool eventually(const std::function<bool()>& condition);

// A line-driven child process (fake_guest). Ended and reaped at the latest by the destructor.
class Program {
 public:
  Program() = default;
  explicit Program(const std::string& socket);
  Program(Program&& other) noexcept { *this = std::move(other); }
  Program& operator=(Program&& other) noexcept;
  ~Program() { end(); }

  std::string say(const std::string& line);  // and its answer
  void tell(const std::string& line);
  std::string hear();
  // A child of this one, or an orphan of its making.
  Program spawn(const std::string& how = "");
  void end(int signal = 9);  // and reap, if it is our child

  pid_t pid = 0;

 private:
  UniqueFd in_, out_;
  std::string prefix_;
};

// One command's connection.
class Command {
 public:
  explicit Command(const std::string& socket);
  Json ask(const Json& request);
  void send(const Json& request);
  Json reply();  // events before it are kept
  Json event();  // the next one
  std::vector<Json> events;
  void close() { fd_.reset(); }

 private:
  bool receive(std::string* text, bool* event, bool* whole);
  UniqueFd fd_;
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest();
  ~DaemonTest() override;

  void start();
  void stop();
  // Runs on the loop's thread and waits for it.
  template <class F>
  auto on_loop(F function) -> decltype(function()) {
    std::promise<decltype(function())> done;
    asio::post(*loop_, [&] { done.set_value(function()); });
    return done.get_future().get();
  }

  // A job of this process, with a running program as its root.
  struct Job {
    std::unique_ptr<Command> command;
    Json admitted;
    Program root;
  };
  Job job(const Json& more = Json::object());
  Json admit(Command& command, const Json& more);
  Json ps(bool all = false);
  Json job_in_ps(const std::string& name, bool all = false);
  uint64_t used(const std::string& name, const char* what = "used_bytes");
  std::vector<Json> events(const std::string& kind);

  TestFolder place_;
  const std::string& folder_ = place_.path();
  std::string socket_;
  Settings settings_;
  std::shared_ptr<FakeGpus> gpus_ = std::make_shared<FakeGpus>();
  std::unique_ptr<asio::io_context> loop_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
};

}  // namespace berth::daemon
