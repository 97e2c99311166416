#include "policy/admission.h"

#include <algorithm>

#include "base/size.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"
#include "policy/names.h"
#include "policy/placement.h"
#include "policy/quotas.h"
#include "policy/room.h"
#include "policy/virtual_devices.h"

namespace berth::policy {
namespace {

// A waiting job's devices hold the quota it wants there.
Wanted wanted_by(const Job& job) {
  Wanted wanted;
  for (DeviceIndex device = 0; device < job.devices.size(); ++device)
    if (const JobDevice& there = job.devices[device]; there.wanted) wanted.push_back({device, there.quota, there.most});
  return wanted;
}

// The devices for which somebody waits: all that jobs ahead of `before` want (all waiting jobs if it is 0).
std::vector<DeviceIndex> waited_for(const State& state, JobId before = 0) {
  std::vector<DeviceIndex> devices;
  for (JobId id : state.queue) {
    if (id == before) break;
    for (const Wish& wish : wanted_by(state.jobs.at(id)))
      if (!contains(devices, wish.device)) devices.push_back(wish.device);
  }
  return devices;
}

// On `devices`, as find_room() gives them.
void place(Job& job, const std::vector<DeviceIndex>& devices, const Wanted& wanted) {
  for (JobDevice& there : job.devices) there = JobDevice{};
  for (DeviceIndex device : devices) {
    JobDevice& there = job.devices[device];
    there.placed = true;
    auto wish = std::find_if(wanted.begin(), wanted.end(), [&](const Wish& w) { return w.device == device; });
    if (wish->quota) there.quota = there.quota.value_or(0) + *wish->quota;
    if (job.gpus > 0)
      job.virtual_devices.emplace_back().device = device, job.virtual_devices.back().quota = *wish->quota;
  }
  job.state = JobState::running;
}

Status check_request(const State& state, const Request& request, const Limits& limits) {
  if (auto status = check_priority(request.priority, limits); !status) return status;
  if (auto status = check_weight(request.weight, limits); !status) return status;
  if (auto status = check_max_share(request.max_share); !status) return status;
  if (auto status = check_max_slowdown(request.max_slowdown); !status) return status;
  if (request.gpus && (*request.gpus < 1 || *request.gpus > kMaxVirtualDevices))
    return Error{"usage", "asked for " + std::to_string(*request.gpus) + " virtual devices; a job can have 1 to " +
                              std::to_string(kMaxVirtualDevices) + " (-g)"};
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
  job.gpus = static_cast<uint32_t>(request.gpus.value_or(0));
  job.devices.resize(state.devices.size());
  return job;
}

JobId keep(State& state, Job job) {
  JobId id = state.next_job++;
  state.jobs.emplace(id, std::move(job));
  return id;
}

// The devices that the user's limits leave, with what the request asks for on each; an error if they leave none.
Result<Wanted> asked_for(const State& state, const Request& request, const std::vector<DeviceIndex>& devices,
                         const Limits& limits) {
  Wanted asked;
  std::optional<Error> over_limit;
  for (DeviceIndex device : devices) {
    if (request.gpus) {
      auto allowed = allowance(state, device, request.uid, 0, limits);
      if (!allowed) return allowed.error();
      auto each = virtual_quota_on(state, device, request.memory, static_cast<size_t>(*request.gpus), *allowed);
      if (!each) return each.error();
      asked.push_back({device, *each, allowed->left()});
      continue;
    }
    auto quota = quota_on(state, device, request.memory, request.uid, 0, limits);
    if (!quota && quota.error().code != "limit") return quota.error();
    // A program that nobody started with `berth run` can't be refused: it attaches, and gets nothing.
    if (!quota && request.is_default) quota = std::optional<uint64_t>(0);
    if (quota)
      asked.push_back({device, *quota});
    else if (!over_limit)
      over_limit = quota.error();
  }
  if (asked.empty()) return *over_limit;
  return asked;
}

// The quota that `memory` means for a job that runs, or for each of its virtual devices on the device; an error if it
// finds no room.
Result<std::optional<uint64_t>> quota_to_set(const State& state, const Job& job, DeviceIndex device,
                                             const std::string& memory, const Limits& limits) {
  const std::vector<uint32_t> there = virtual_devices_on(job, device);
  const size_t count = std::max<size_t>(there.size(), 1);
  std::optional<uint64_t> quota;
  uint64_t all = 0;  // what the job would hold on to
  if (there.empty()) {
    auto found = quota_on(state, device, memory, job.uid, job.id, limits);
    if (!found) return found;
    quota = *found;
    all = quota.value_or(0);
  } else {
    auto allowed = allowance(state, device, job.uid, job.id, limits);
    if (!allowed) return allowed.error();
    auto each = virtual_quota_on(state, device, memory, job.gpus, *allowed);
    if (!each) return each.error();
    if (auto status = check_size(state, device, *each, count); !status) return status.error();
    if (*each > allowed->left() / count) return over_limit(amount_text(*each, count), device, *allowed);
    quota = *each;
    for (uint32_t v : there) all += std::max(*each, job.virtual_devices[v].used);
  }
  uint64_t present = promised(job, device), room = promisable(state, device, job.id);
  if (all <= present) return quota;
  if (auto status = check_size(state, device, *quota, there.size()); !status) return status.error();
  if (all <= room) return quota;
  uint64_t most = std::max(room, present);
  return Error{"refused", job.name + " could have at most " +
                              (there.empty() ? format_size(most) : at_most_text(even_share(most, count)) + " each") +
                              ": " + no_room_text(state, device, amount_text(*quota, there.size()))};
}

// For a job that doesn't want to wait.
Error refusal(const State& state, const Wanted& wanted, size_t gpus) {
  if (!find_room(state, wanted, gpus, {}).empty()) {
    size_t ahead = state.queue.size();
    const auto& quota = wanted.front().quota;
    return {"refused", "asked for " + (quota ? amount_text(*quota, gpus) : "a device") + ", but " +
                           (ahead == 1 ? "1 job waits" : std::to_string(ahead) + " jobs wait") +
                           " for room before this one; queue behind with --wait"};
  }
  bool open = std::any_of(wanted.begin(), wanted.end(), [&](const Wish& wish) { return is_open(state, wish.device); });
  return {"refused", no_room(state, wanted, gpus) + (open ? "; wait for room with --wait, ask for less, or end one of them"
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
    for (const Wish& wish : *asked) {
      job.devices[wish.device].placed = true;
      if (wish.quota) job.devices[wish.device].quota = std::min(*wish.quota, promisable(state, wish.device));
    }
    return Admitted{keep(state, std::move(job))};
  }
  auto wanted = possible(state, *asked, job.gpus);
  if (!wanted) return wanted.error();
  if (auto room = find_room(state, *wanted, job.gpus, waited_for(state)); !room.empty()) {
    place(job, room, *wanted);
    return Admitted{keep(state, std::move(job))};
  }
  if (!request.may_wait) return refusal(state, *wanted, job.gpus);
  job.state = JobState::waiting;
  for (const Wish& wish : *wanted) {
    JobDevice& there = job.devices[wish.device];
    there.wanted = true, there.quota = wish.quota, there.most = wish.most;
  }
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
    if (auto room = find_room(state, wanted, job.gpus, closed); !room.empty()) {
      place(job, room, wanted);
      admitted.push_back(*it);
      it = state.queue.erase(it);
      continue;
    }
    for (const Wish& wish : wanted) closed.push_back(wish.device);
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
  std::string text = no_room(state, wanted, state.jobs.at(job).gpus);
  std::vector<DeviceIndex> ahead = waited_for(state, job);
  bool behind =
      std::any_of(wanted.begin(), wanted.end(), [&](const Wish& wish) { return contains(ahead, wish.device); });
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
  std::vector<std::optional<uint64_t>> quotas(job.devices.size());  // of one virtual device, if there are any
  for (DeviceIndex device = 0; device < job.devices.size(); ++device) {
    if (!job.devices[device].placed) continue;
    auto quota = quota_to_set(state, job, device, memory, limits);
    if (!quota) return quota.error();
    quotas[device] = *quota;
  }
  for (DeviceIndex device = 0; device < job.devices.size(); ++device) {
    if (!job.devices[device].placed) continue;
    job.devices[device].quota = quotas[device];
    std::vector<uint32_t> there = virtual_devices_on(job, device);
    for (uint32_t v : there) job.virtual_devices[v].quota = *quotas[device];
    if (!there.empty()) *job.devices[device].quota *= there.size();
  }
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
