// The program as a forked child that has not been let go yet: between fork and exec the daemon learns of it, so that it
// is known before its first instruction.
//
// The process must have one thread when hold() is called. A HeldChild that is destroyed without go() ends its child; if
// the parent is killed first, the child sees the pipe close and ends too.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/isolate.h"
#include "client/signals.h"

namespace berth::client {

struct Launch {
  std::string path;                    // as find_program() found it
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::optional<IsolationPlan> isolation;
};

class HeldChild {
 public:
  // `signals` is what the child gives back before it executes. Error if it can't be forked or isolated.
  static Result<HeldChild> hold(const Launch& launch, const SignalIntake& signals);
  HeldChild(HeldChild&&) = default;
  HeldChild& operator=(HeldChild&&) = delete;
  ~HeldChild();

  pid_t pid() const { return pid_; }

  // Lets the child execute. Error: `not_found` or `not_executable` if that fails; the child has ended then.
  Status go();

 private:
  HeldChild(pid_t pid, UniqueFd gate, UniqueFd report);
  pid_t pid_;
  UniqueFd gate_;    // a byte: go
  UniqueFd report_;  // from the child: its fault as text, a byte when it stands ready, closed by exec
};

// The environment of this process with our shim folder first on LD_LIBRARY_PATH. Under isolation a BERTH_DRIVER names
// the place where the driver that it named can still be reached: its own place is covered. `visible_devices`: the
// CUDA_VISIBLE_DEVICES that the job's place wants, if any. With virtual devices (`gpus` above 0) BERTH_GPUS tells our
// libraries how many there are, and the runtime alias library comes first in LD_PRELOAD where it is installed.
std::vector<std::string> program_environment(const std::optional<IsolationPlan>& isolation,
                                             const std::optional<std::string>& visible_devices, int gpus);

// Its path, beside our libcuda.so.1.
std::string runtime_alias_path();

}  // namespace berth::client
