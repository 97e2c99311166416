#include "policy/accounts.h"

#include <algorithm>

#include "policy/virtual_devices.h"

namespace berth::policy {
namespace {

constexpr size_t index_of(Kind kind) { return static_cast<size_t>(kind); }

bool any_promise(const State& state, DeviceIndex device) {
  return std::any_of(state.jobs.begin(), state.jobs.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return job.state != JobState::waiting && job.state != JobState::ended && job.devices[device].quota;
  });
}

// The job's virtual devices on a device: first that of the client's first context, or the first where it holds
// anything.
std::vector<uint32_t> home_first(const Job& job, const Client& client, DeviceIndex device) {
  std::vector<uint32_t> order = virtual_devices_on(job, device);
  auto home = std::find_if(order.begin(), order.end(), [&](uint32_t v) {
    const auto& told = client.holdings[device].home;
    return told ? v == *told : held(client.parts[v]) > 0;
  });
  if (home != order.end()) std::rotate(order.begin(), home, home + 1);
  return order;
}

// Unsigned arithmetic wraps, so one addition serves growth and shrinking.
void change_sums(State& state, Job& job, Client& client, DeviceIndex device, Kind kind, uint64_t change) {
  Holding& holding = client.holdings[device];
  JobDevice& there = job.devices[device];
  holding.bytes[index_of(kind)] += change;
  if (kind == Kind::imported) return;
  there.used += change;
  if (client.state == ClientState::leaving) there.leaving += change;
  state.devices[device].used += change;
  holding.peak = std::max(holding.peak, counted(holding));
}

// And keeps note of the one with the client's first context on a device.
void set_part(State& state, Job& job, Client& client, uint32_t v, Kind kind, uint64_t bytes) {
  VirtualDevice& part = job.virtual_devices[v];
  uint64_t& present = client.parts[v][index_of(kind)];
  uint64_t change = bytes - present;
  present = bytes;
  auto& home = client.holdings[part.device].home;
  if (kind == Kind::overhead && bytes > 0 && !home) home = v;
  if (kind == Kind::overhead && bytes == 0 && home == v) home.reset();
  if (kind != Kind::imported) part.used += change;
  if (kind != Kind::imported && client.state == ClientState::leaving) part.leaving += change;
  change_sums(state, job, client, part.device, kind, change);
}

}  // namespace

uint64_t held(const Bytes& bytes) {
  uint64_t sum = 0;
  for (uint64_t part : bytes) sum += part;
  return sum - bytes[index_of(Kind::imported)];
}

uint64_t counted(const Holding& holding) { return held(holding) - holding.bytes[index_of(Kind::overhead)]; }

uint64_t surely_resident(const Holding& holding) { return counted(holding) - holding.bytes[index_of(Kind::managed)]; }

void set_bytes(State& state, Client& client, Place place, Kind kind, uint64_t bytes) {
  Job& job = state.jobs.at(client.job);
  if (place.virtual_device) return set_part(state, job, client, *place.virtual_device, kind, bytes);
  std::vector<uint32_t> order = home_first(job, client, place.device);
  if (order.empty()) return change_sums(state, job, client, place.device, kind, bytes - bytes_of(client, place, kind));
  uint64_t present = bytes_of(client, place, kind);
  if (bytes >= present) {
    uint64_t at_home = client.parts[order.front()][index_of(kind)];
    return set_part(state, job, client, order.front(), kind, at_home + (bytes - present));
  }
  for (uint64_t less_by = present - bytes; less_by > 0; order.pop_back()) {
    uint64_t there = client.parts[order.back()][index_of(kind)], taken = std::min(there, less_by);
    set_part(state, job, client, order.back(), kind, there - taken);
    less_by -= taken;
  }
}

uint64_t bytes_of(const Client& client, Place place, Kind kind) {
  return place.virtual_device ? client.parts[*place.virtual_device][index_of(kind)]
                              : client.holdings[place.device].bytes[index_of(kind)];
}

Use use_of(const Job& job, Place place) {
  if (!place.virtual_device) {
    const JobDevice& there = job.devices[place.device];
    return {there.quota, there.used, there.leaving};
  }
  const VirtualDevice& there = job.virtual_devices[*place.virtual_device];
  return {there.quota, there.used, there.leaving};
}

uint64_t promised(const Job& job, DeviceIndex device) {
  const JobDevice& there = job.devices[device];
  if (job.state == JobState::waiting) return 0;
  if (job.state == JobState::ended || !there.quota) return there.used;
  if (job.virtual_devices.empty()) return std::max(*there.quota, there.used);
  uint64_t sum = 0;
  for (const VirtualDevice& part : job.virtual_devices)
    if (part.device == device) sum += std::max(part.quota, part.used);
  return sum;
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

uint64_t available(const State& state, const Job& job, Place place) {
  Use use = use_of(job, place);
  if (use.quota) {
    uint64_t left = less(*use.quota, use.used);
    if (!place.virtual_device && !job.virtual_devices.empty()) left = less(promised(job, place.device), use.used);
    return std::min(left, idle(state, place.device));
  }
  if (has_quota(job)) return 0;  // it was promised memory elsewhere, and none here
  // Nobody who is alone loses the headroom; where memory was promised to others it is theirs.
  return any_promise(state, place.device) ? promisable(state, place.device) : unpromised(state, place.device);
}

uint64_t available_soon(const State& state, const Job& job, Place place) {
  Use use = use_of(job, place);
  uint64_t soon = available(state, job, place) + use.leaving;
  return use.quota ? std::min(soon, less(*use.quota, use.used - use.leaving)) : soon;
}

bool has_quota(const Job& job) {
  return std::any_of(job.devices.begin(), job.devices.end(),
                     [](const JobDevice& there) { return there.quota.has_value(); });
}

size_t jobs_on(const State& state, DeviceIndex device) {
  return static_cast<size_t>(std::count_if(state.jobs.begin(), state.jobs.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return lives(job) && job.devices[device].placed;
  }));
}

}  // namespace berth::policy
