#include "policy/admission.h"

#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"
#include "policy/names.h"
#include "policy/placement.h"

namespace berth::policy {
namespace {

std::string device_text(DeviceIndex device) { return "GPU " + std::to_string(device); }

bool lives(const Job& job) { return job.state == JobState::running || job.state == JobState::paused; }

// "training-1 (alice) 8 GiB, notebook-1 (bob) 4 GiB, no job 600 MiB, kept free for the driver 1 GiB"
std::string holders(const State& state, DeviceIndex device) {
  std::string text;
  auto add = [&](const std::string& who, uint64_t bytes) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + who + " " + format_size(bytes);
  };
  std::vector<const Job*> jobs;
  for (const auto& [id, job] : state.jobs) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const Job* a, const Job* b) { return promised(*a, device) > promised(*b, device); });
  size_t shown = 0;
  uint64_t rest = 0;
  for (const Job* job : jobs) {
    if (shown < 8)
      add(job->name + " (" + job->user + ")", promised(*job, device));
    else
      rest += promised(*job, device);
    shown += promised(*job, device) > 0 ? 1 : 0;
  }
  add("more jobs", rest);
  add("processes of no job", state.devices[device].unmanaged);
  add("kept free for the driver", state.devices[device].headroom);
  return text;
}

// The quota that `memory` means on a device, limits applied.
Result<std::optional<uint64_t>> quota_on(const State& state, DeviceIndex device, const std::string& memory,
                                         uint32_t uid, JobId but, const Limits& limits) {
  auto quota = parse_quota(memory, state.devices[device].total);
  if (!quota || limits.max_memory.empty()) return quota;
  auto limit = parse_quota(limits.max_memory, state.devices[device].total);
  if (!limit) return limit.error();
  if (!*limit) return quota;
  uint64_t taken = 0;
  for (const auto& [id, job] : state.jobs)
    if (id != but && job.uid == uid && lives(job)) taken += promised(job, device);
  uint64_t left = less(**limit, taken);
  if (!*quota && left > 0) return std::optional<uint64_t>(left);  // no quota asked for: the limit is one
  if (quota->value_or(1) <= left) return quota;
  return Error{"limit", "asked for " + (*quota ? format_size(**quota) : "memory") + " on " + device_text(device) +
                            "; the configuration allows this user " + format_size(**limit) + ", of which " +
                            format_size(taken) + " are taken; ask for less or end one of your jobs"};
}

uint64_t could_ever_promise(const Device& device) { return less(device.total, device.headroom); }

std::string no_room_text(const State& state, DeviceIndex device, uint64_t quota) {
  return "asked for " + format_size(quota) + ", but " + device_text(device) + " has " +
         format_size(promisable(state, device)) + " of " + format_size(state.devices[device].total) +
         " left to promise (" + holders(state, device) + ")";
}

// Where a job could be placed, with its quota there.
using Wanted = std::vector<std::pair<DeviceIndex, std::optional<uint64_t>>>;

// One line about a job that finds no room on any of the devices (not empty).
std::string no_room(const State& state, const Wanted& wanted) {
  Wanted open;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(open),
               [&](const auto& entry) { return is_open(state, entry.first); });
  if (open.empty())
    return not_open_text(state, wanted.front().first) + (wanted.size() > 1 ? "; no other device is free" : "");
  auto best = std::max_element(open.begin(), open.end(), [&](const auto& a, const auto& b) {
    return promisable(state, a.first) < promisable(state, b.first);
  });
  std::string text = no_room_text(state, best->first, best->second.value_or(0));
  return wanted.size() == 1             ? text
         : open.size() == wanted.size() ? text + "; the other devices have less"
                                        : text + "; the other devices have less or are not free";
}

// An error if the quota would not even be admitted on an empty device.
Status check_size(const State& state, DeviceIndex index, uint64_t quota) {
  const Device& device = state.devices[index];
  if (quota <= could_ever_promise(device)) return Ok{};
  return Error{"usage", "asked for " + format_size(quota) + ", but " + device_text(index) + " has " +
                            format_size(device.total) + ", of which " + format_size(device.headroom) +
                            " stay free for the driver: ask for less, at most " +
                            format_size(could_ever_promise(device))};
}

// Those of the devices where the quota fits an empty device that is not prohibited; an error if that is none.
Result<Wanted> possible(const State& state, const Wanted& asked) {
  Wanted wanted;
  const Wanted::value_type* largest = nullptr;
  for (const auto& entry : asked) {
    const Device& device = state.devices[entry.first];
    if (compute_mode(device) == ComputeMode::prohibited) continue;
    if (!largest || device.total > state.devices[largest->first].total) largest = &entry;
    if (entry.second.value_or(0) <= could_ever_promise(device)) wanted.push_back(entry);
  }
  if (!wanted.empty()) return wanted;
  if (largest) return check_size(state, largest->first, *largest->second).error();
  // It would wait for ever.
  std::string advice = asked.size() > 1           ? ", and so are the other devices; change their modes"
                       : state.devices.size() > 1 ? "; choose another with --device, or change that mode"
                                                  : "; change that mode";
  return Error{"refused", not_open_text(state, asked.front().first) + advice};
}

// Most free promise first, then fewest jobs, then the order given.
void prefer(const State& state, Wanted* wanted) {
  std::stable_sort(wanted->begin(), wanted->end(), [&](const auto& a, const auto& b) {
    uint64_t free_a = promisable(state, a.first), free_b = promisable(state, b.first);
    return free_a != free_b ? free_a > free_b : jobs_on(state, a.first) < jobs_on(state, b.first);
  });
}

bool contains(const std::vector<DeviceIndex>& devices, DeviceIndex device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// Without a quota there is nothing to wait for, unless the device is for one job at a time.
bool must_queue(const State& state, DeviceIndex device, const std::optional<uint64_t>& quota) {
  return quota || compute_mode(state.devices[device]) != ComputeMode::shared;
}

std::optional<Wanted::value_type> find_room(const State& state, Wanted wanted, const std::vector<DeviceIndex>& closed) {
  prefer(state, &wanted);
  for (const auto& [device, quota] : wanted) {
    if (contains(closed, device) && must_queue(state, device, quota)) continue;
    if (is_open(state, device) && quota.value_or(0) <= promisable(state, device)) return std::pair(device, quota);
  }
  return std::nullopt;
}

// A waiting job's devices hold the quota it wants there.
Wanted wanted_by(const Job& job) {
  Wanted wanted;
  for (DeviceIndex device = 0; device < job.devices.size(); ++device)
    if (job.devices[device].wanted) wanted.emplace_back(device, job.devices[device].quota);
  return wanted;
}

// The devices for which somebody waits: all that jobs ahead of `before` want (all waiting jobs if it is 0).
std::vector<DeviceIndex> waited_for(const State& state, JobId before = 0) {
  std::vector<DeviceIndex> devices;
  for (JobId id : state.queue) {
    if (id == before) break;
    for (const auto& [device, quota] : wanted_by(state.jobs.at(id)))
      if (!contains(devices, device)) devices.push_back(device);
  }
  return devices;
}

void place(Job& job, DeviceIndex device, std::optional<uint64_t> quota) {
  for (JobDevice& there : job.devices) there.placed = there.wanted = false, there.quota.reset();
  job.devices[device].placed = true;
  job.devices[device].quota = quota;
  job.state = JobState::running;
}

Status check_request(const State& state, const Request& request, const Limits& limits) {
  if (auto status = check_priority(request.priority, limits); !status) return status;
  if (auto status = check_weight(request.weight, limits); !status) return status;
  if (auto status = check_max_share(request.max_share); !status) return status;
  if (auto status = check_max_slowdown(request.max_slowdown); !status) return status;
  if (auto status = check_name(state, request.uid, request.name); !status) return status;
  auto mine = std::count_if(state.jobs.begin(), state.jobs.end(), [&](const auto& entry) {
    return entry.second.uid == request.uid && entry.second.state != JobState::ended && !entry.second.is_default;
  });
  if (limits.max_jobs && mine >= *limits.max_jobs && !request.is_default)
    return Error{"limit", "the configuration allows this user " + std::to_string(*limits.max_jobs) + " jobs and " +
                              std::to_string(mine) + " are there; end one of them first"};
  return Ok{};
}

Job new_job(const State& state, const Request& request) {
  Job job;
  job.id = state.next_job;
  job.name = request.name.empty() ? default_name(state, request.uid, request.command) : request.name;
  job.user = request.user;
  job.uid = request.uid;
  job.command = request.command;
  job.priority = request.priority;
  job.weight = static_cast<uint32_t>(request.weight);
  job.max_share = request.max_share;
  job.max_slowdown = request.max_slowdown;
  job.strict = request.strict;
  job.is_default = request.is_default;
  job.devices.resize(state.devices.size());
  return job;
}

JobId keep(State& state, Job job) {
  JobId id = state.next_job++;
  state.jobs.emplace(id, std::move(job));
  return id;
}

// The devices that the user's limits leave, with the quota on each; an error if they leave none.
Result<Wanted> asked_for(const State& state, const Request& request, const std::vector<DeviceIndex>& devices,
                         const Limits& limits) {
  Wanted asked;
  std::optional<Error> over_limit;
  for (DeviceIndex device : devices) {
    auto quota = quota_on(state, device, request.memory, request.uid, 0, limits);
    if (!quota && quota.error().code != "limit") return quota.error();
    // A program that nobody started with `berth run` can't be refused: it attaches, and gets nothing.
    if (!quota && request.is_default) quota = std::optional<uint64_t>(0);
    if (quota)
      asked.emplace_back(device, *quota);
    else if (!over_limit)
      over_limit = quota.error();
  }
  if (asked.empty()) return *over_limit;
  return asked;
}

// For a job that doesn't want to wait.
Error refusal(const State& state, const Wanted& wanted) {
  if (find_room(state, wanted, {})) {
    size_t ahead = state.queue.size();
    const auto& quota = wanted.front().second;
    return {"refused", "asked for " + (quota ? format_size(*quota) : "a device") + ", but " +
                           (ahead == 1 ? "1 job waits" : std::to_string(ahead) + " jobs wait") +
                           " for room before this one; queue behind with --wait"};
  }
  bool open = std::any_of(wanted.begin(), wanted.end(), [&](const auto& entry) { return is_open(state, entry.first); });
  return {"refused", no_room(state, wanted) + (open ? "; wait for room with --wait, ask for less, or end one of them"
                                                    : "; wait for it with --wait, or end that first")};
}

}  // namespace

Admission admit(State& state, const Request& request, const Limits& limits) {
  if (auto status = check_request(state, request, limits); !status) return status.error();
  auto devices = allowed_devices(state, request.device, request.visible_devices);
  if (!devices) return devices.error();

  auto asked = asked_for(state, request, *devices, limits);
  if (!asked) return asked.error();
  Job job = new_job(state, request);
  if (request.is_default) {
    for (const auto& [device, quota] : *asked) {
      job.devices[device].placed = true;
      if (quota) job.devices[device].quota = std::min(*quota, promisable(state, device));
    }
    return Admitted{keep(state, std::move(job))};
  }
  auto wanted = possible(state, *asked);
  if (!wanted) return wanted.error();
  if (auto room = find_room(state, *wanted, waited_for(state))) {
    place(job, room->first, room->second);
    return Admitted{keep(state, std::move(job))};
  }
  if (!request.may_wait) return refusal(state, *wanted);
  job.state = JobState::waiting;
  for (const auto& [device, quota] : *wanted) job.devices[device].wanted = true, job.devices[device].quota = quota;
  JobId id = keep(state, std::move(job));
  state.queue.push_back(id);
  return Queued{id, state.queue.size(), waiting_for(state, id)};
}

std::vector<JobId> admit_waiting(State& state) {
  std::vector<JobId> admitted;
  std::vector<DeviceIndex> closed;
  for (auto it = state.queue.begin(); it != state.queue.end();) {
    Job& job = state.jobs.at(*it);
    Wanted wanted = wanted_by(job);
    if (auto room = find_room(state, wanted, closed)) {
      place(job, room->first, room->second);
      admitted.push_back(*it);
      it = state.queue.erase(it);
      continue;
    }
    for (const auto& [device, quota] : wanted) closed.push_back(device);
    ++it;
  }
  return admitted;
}

size_t queue_position(const State& state, JobId job) {
  auto it = std::find(state.queue.begin(), state.queue.end(), job);
  return it == state.queue.end() ? 0 : static_cast<size_t>(it - state.queue.begin()) + 1;
}

std::string waiting_for(const State& state, JobId job) {
  Wanted wanted = wanted_by(state.jobs.at(job));
  std::string text = no_room(state, wanted);
  std::vector<DeviceIndex> ahead = waited_for(state, job);
  bool behind =
      std::any_of(wanted.begin(), wanted.end(), [&](const auto& entry) { return contains(ahead, entry.first); });
  return behind ? text + "; other jobs wait before this one" : text;
}

void end_job(State& state, JobId id) {
  Job& job = state.jobs.at(id);
  if (job.state != JobState::waiting) {
    job.state = JobState::ended;
    return;
  }
  std::erase(state.queue, id);
  state.jobs.erase(id);
}

Status set_memory(State& state, JobId id, const std::string& memory, const Limits& limits) {
  Job& job = state.jobs.at(id);
  std::vector<std::pair<JobDevice*, std::optional<uint64_t>>> changes;
  for (DeviceIndex device = 0; device < job.devices.size(); ++device) {
    JobDevice& there = job.devices[device];
    if (!there.placed) continue;
    auto quota = quota_on(state, device, memory, job.uid, id, limits);
    if (!quota) return quota.error();
    uint64_t present = promised(job, device), room = promisable(state, device, id);
    if (quota->value_or(0) > present)
      if (auto status = check_size(state, device, **quota); !status) return status;
    if (*quota && **quota > present && **quota > room)
      return Error{"refused", job.name + " could have at most " + format_size(std::max(room, present)) + ": " +
                                  no_room_text(state, device, **quota)};
    changes.emplace_back(&there, *quota);
  }
  for (auto& [there, quota] : changes) there->quota = quota;
  return Ok{};
}

Status check_weight(int64_t weight, const Limits& limits) {
  if (weight < 1 || weight > 10000)
    return Error{"usage", "a weight of " + std::to_string(weight) + " is out of range: give 1 to 10000 (100 is usual)"};
  if (weight > limits.max_weight)
    return Error{"limit", "asked for weight " + std::to_string(weight) +
                              "; the configuration allows this user at most " + std::to_string(limits.max_weight)};
  return Ok{};
}

Status check_priority(Priority priority, const Limits& limits) {
  if (priority <= limits.max_priority) return Ok{};
  return Error{"limit", std::string("asked for priority ") + to_string(priority) +
                            "; the configuration allows this user at most " + to_string(limits.max_priority)};
}

Status check_max_share(std::optional<double> ratio) {
  if (!ratio || (*ratio > 0 && *ratio <= 1)) return Ok{};
  return Error{"usage", "a share of the GPU's time is above 0 and at most 100%"};
}

Status check_max_slowdown(std::optional<double> ratio) {
  if (!ratio || (*ratio >= 1 && *ratio <= 100)) return Ok{};
  return Error{"usage", "a slowdown is a number from 1 (none is allowed) to 100, such as 1.1"};
}

}  // namespace berth::policy
