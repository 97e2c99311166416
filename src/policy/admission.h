// May a job start, where, and if not: who is in the way. First come first served: a job that waits is not overtaken by
// one that wants room on the same devices.
#pragma once
#include <variant>

#include "base/result.h"
#include "policy/state.h"

namespace berth::policy {

// What a user may have, by the daemon's configuration.
struct Limits {
  std::string max_memory;  // sum of the quotas of the user's jobs on a device: a size or a percentage; "" = no limit
  std::optional<uint32_t> max_jobs;
  Priority max_priority = Priority::high;
  uint32_t max_weight = 10000;
};

// What is asked for, unchecked; texts as people wrote them.
struct Request {
  std::string name;  // "" = COMMAND-1, COMMAND-2 ...
  std::string user;
  uint32_t uid = 0;
  std::vector<std::string> command;
  std::string memory;           // of each virtual device; "" = no promise, or an equal part of the device for each
  std::optional<int64_t> gpus;  // virtual devices; none: the job sees its device itself
  Priority priority = Priority::normal;
  int64_t weight = 100;
  std::optional<double> max_share, max_slowdown;
  std::string device;                          // an index, a UUID or the start of one; "" = any that is visible
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  bool may_wait = false;
  bool strict = false;
  bool is_default = false;  // the user's default job: on all devices
};

struct Admitted {
  JobId job = 0;
};
struct Queued {
  JobId job = 0;
  size_t position = 1;
  std::string waiting_for;  // one clear line
};
using Admission = std::variant<Admitted, Queued, Error>;

// Admits, queues or refuses; changes the state only in the first two cases.
Admission admit(State& state, const Request& request, const Limits& limits);

// Takes the jobs that fit now off the queue, in order; they are running then.
std::vector<JobId> admit_waiting(State& state);

// 1 for the next one; 0 if the job doesn't wait.
size_t queue_position(const State& state, JobId job);

// Why a waiting job waits: one clear line.
std::string waiting_for(const State& state, JobId job);

// The job will hold nothing any more but what is leaving. A waiting job is erased.
void end_job(State& state, JobId job);

// Another quota ("" = as at admission) on all devices where the job is placed, or of each of its virtual devices. Below
// the present use is fine: free is then 0.
Status set_memory(State& state, JobId job, const std::string& memory, const Limits& limits);

// Checks a value against the limits: usage or limit errors.
Status check_weight(int64_t weight, const Limits& limits);
Status check_priority(Priority priority, const Limits& limits);
Status check_max_share(std::optional<double> ratio);
Status check_max_slowdown(std::optional<double> ratio);

}  // namespace berth::policy
