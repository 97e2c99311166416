#include "policy/accounts.h"

#include <algorithm>

namespace berth::policy {
namespace {

constexpr size_t index_of(Kind kind) { return static_cast<size_t>(kind); }

bool any_promise(const State& state, DeviceIndex device) {
  return std::any_of(state.jobs.begin(), state.jobs.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return job.state != JobState::waiting && job.state != JobState::ended && job.devices[device].quota;
  });
}

}  // namespace

uint64_t held(const Holding& holding) {
  uint64_t sum = 0;
  for (uint64_t bytes : holding.bytes) sum += bytes;
  return sum - holding.bytes[index_of(Kind::imported)];
}

uint64_t counted(const Holding& holding) { return held(holding) - holding.bytes[index_of(Kind::overhead)]; }

uint64_t surely_resident(const Holding& holding) { return counted(holding) - holding.bytes[index_of(Kind::managed)]; }

void set_bytes(State& state, Client& client, DeviceIndex device, Kind kind, uint64_t bytes) {
  Holding& holding = client.holdings[device];
  JobDevice& job = state.jobs.at(client.job).devices[device];
  uint64_t& present = holding.bytes[index_of(kind)];
  // Unsigned arithmetic wraps, so one addition serves growth and shrinking.
  uint64_t change = bytes - present;
  present = bytes;
  if (kind == Kind::imported) return;
  job.used += change;
  if (client.state == ClientState::leaving) job.leaving += change;
  state.devices[device].used += change;
  holding.peak = std::max(holding.peak, counted(holding));
}

uint64_t promised(const Job& job, DeviceIndex device) {
  const JobDevice& there = job.devices[device];
  if (job.state == JobState::waiting) return 0;
  if (job.state == JobState::ended || !there.quota) return there.used;
  return std::max(*there.quota, there.used);
}

uint64_t unpromised(const State& state, DeviceIndex device, JobId but) {
  uint64_t taken = state.devices[device].unmanaged;
  for (const auto& [id, job] : state.jobs)
    if (id != but) taken += promised(job, device);
  return less(state.devices[device].total, taken);
}

uint64_t promisable(const State& state, DeviceIndex device, JobId but) {
  return less(unpromised(state, device, but), state.devices[device].headroom);
}

uint64_t idle(const State& state, DeviceIndex device) {
  const Device& d = state.devices[device];
  return less(d.total, d.unmanaged + d.used);
}

uint64_t available(const State& state, const Job& job, DeviceIndex device) {
  const JobDevice& there = job.devices[device];
  if (there.quota) return std::min(less(*there.quota, there.used), idle(state, device));
  if (has_quota(job)) return 0;  // it was promised memory elsewhere, and none here
  // Nobody who is alone loses the headroom; where memory was promised to others it is theirs.
  return any_promise(state, device) ? promisable(state, device) : unpromised(state, device);
}

uint64_t available_soon(const State& state, const Job& job, DeviceIndex device) {
  const JobDevice& there = job.devices[device];
  uint64_t soon = available(state, job, device) + there.leaving;
  return there.quota ? std::min(soon, less(*there.quota, there.used - there.leaving)) : soon;
}

bool has_quota(const Job& job) {
  return std::any_of(job.devices.begin(), job.devices.end(),
                     [](const JobDevice& there) { return there.quota.has_value(); });
}

size_t jobs_on(const State& state, DeviceIndex device) {
  return static_cast<size_t>(std::count_if(state.jobs.begin(), state.jobs.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return (job.state == JobState::running || job.state == JobState::paused) && job.devices[device].placed;
  }));
}

}  // namespace berth::policy
