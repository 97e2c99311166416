// What `berth run` does while its program runs: it passes signals on, prints what the daemon has to say, brings a dead
// per-user daemon back, and stays until the last process below it has ended.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "client/connection.h"
#include "client/signals.h"

namespace berth::client {

inline constexpr int kExitBerth = 125;  // berth's own failure, as docker has it

struct SupervisedJob {
  Json job;                 // of Admission
  pid_t root = 0;           // the program, a child of this process
  bool own_daemon = false;  // may be started again by us: not the system's
  pid_t daemon = 0;         // a daemon that is a child of this process: not part of the job
  std::function<void(const std::string&)> say;  // one line for the user
};

// Makes orphans below this process its children, so that none leaves the job. Before the program starts.
void adopt_orphans();

// Keeps `connection` and returns when all processes of the job have ended: the exit code for `berth run`.
class Supervisor {
 public:
  Supervisor(Connection connection, SignalIntake signals, SupervisedJob job);
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_something();
  void take_signals();
  void pass_on(const SignalIntake::Received& received);
  void reap();
  bool all_ended();
  void hear(const Json& event);
  void lose();
  void reconnect();
  void end_job();
  int exit_code() const;

  std::optional<Connection> connection_;
  SignalIntake signals_;
  SupervisedJob job_;
  std::string socket_;
  std::optional<int> root_status_;
  bool no_children_ = false;
  bool ending_ = false;              // a strict job that broke its rule
  Clock::time_point kill_at_{};      // when ending_ loses patience
  Clock::time_point lost_at_{}, try_at_{}, start_at_{};
  bool complained_ = false;
};

}  // namespace berth::client
