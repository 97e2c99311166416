// What `berth run` asks of the daemon, step by step: admit, start, finish.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "wire/guest_protocol.h"

namespace berth::client {

inline constexpr int kMaxGpus = static_cast<int>(wire::kMaxDevices);

// One field an option; the daemon checks them again. Absent: the daemon's default.
struct JobRequest {
  std::optional<std::string> name;
  std::vector<std::string> command;
  std::optional<std::string> memory;  // as base/size.h reads it; of each virtual device
  std::optional<int> gpus;            // virtual devices
  std::string priority = "normal";
  int weight = 100;
  std::optional<double> max_share_ratio, max_slowdown_ratio;
  std::optional<std::string> device;       // index or UUID
  std::optional<std::string> visible_devices;
  long wait_seconds = 0;                   // 0: don't wait; -1: for ever
  bool strict = false;
};

Json admit_request(const JobRequest& request);

struct Admission {
  Json job;          // the daemon's handle, given back as it came
  std::string name;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES for the program; none: as it is
  std::vector<std::string> notes;  // lines for the user: another daemon on the same device, for instance
};

// Asks for room. While the job is queued, `queued` gets the daemon's {"event":"queued",...} objects. If a per-user daemon
// dies meanwhile it is started again and asked again. Errors: the daemon's, `refused` when there is no room.
// *connection holds the conversation to go on with; *daemon is as connect_or_start_daemon() sets it, if one was started.
Result<Admission> admit(Connection* connection, JobRequest request, const std::function<void(const Json&)>& queued,
                        pid_t* daemon);

// Tells the daemon the root process, which must be a child of this process and must not have run yet.
// Also how a new connection takes the job over again after a restart of the daemon.
Status start(Connection* connection, const Json& job, pid_t pid, std::chrono::milliseconds timeout = kUsualTimeout);

// The last process has ended. Best effort: the daemon sees it for itself, a moment later.
void finish(Connection* connection, const Json& job, int exit_code);

}  // namespace berth::client
