// Signals of `berth run`, which stands between whoever sends them and the program.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::client {

// "TERM", "SIGTERM", "15", "rtmin+1"; nullopt if there is no such signal.
std::optional<int> parse_signal(std::string_view text);

// "SIGTERM", or "signal 40" without a name.
std::string signal_name(int number);

// Takes all signals but those which faults and job control raise, from its construction on; they are then read from fd().
// One object a process, made while it has one thread. What was in force before is kept for the program: restore()
// belongs into the forked child right before exec.
class SignalIntake {
 public:
  static Result<SignalIntake> take();
  int fd() const { return fd_.get(); }

  struct Received {
    int number;
    bool from_kernel;  // the terminal's: it has reached the whole foreground process group already
    pid_t sender;      // 0 if unknown
    int code;
    uint64_t value;    // of sigqueue
  };
  std::optional<Received> next();  // nullopt: none is waiting

  void restore() const;            // async-signal-safe

  // Does what SIGTSTP does by default to this process: `fg` must find the whole job stopped.
  void stop_self() const;

 private:
  UniqueFd fd_;
  sigset_t before_{};
  struct sigaction child_before_{};
};

}  // namespace berth::client
