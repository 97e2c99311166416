#include "policy/memory.h"

#include <algorithm>

#include "policy/accounts.h"
#include "policy/compute_mode.h"

namespace berth::policy {
namespace {

constexpr size_t kOverhead = static_cast<size_t>(Kind::overhead);

bool has_overhead(const State& state, const Job& job, DeviceIndex device) {
  return std::any_of(state.clients.begin(), state.clients.end(), [&](const auto& entry) {
    const Client& client = entry.second;
    return client.job == job.id && client.state != ClientState::leaving && client.holdings[device].bytes[kOverhead] > 0;
  });
}

// What a job may get beyond its quota without touching what others were promised; the headroom is there for it.
uint64_t beyond_quota(const State& state, const Job& job, DeviceIndex device) {
  uint64_t own = less(promised(job, device), job.devices[device].used);
  return std::min(unpromised(state, device) + own, idle(state, device));
}

}  // namespace

Client& add_client(State& state, JobId job, ProcessId process, bool viewer, Time now) {
  Client& client = state.clients[state.next_client];
  client.id = state.next_client++;
  client.job = job;
  client.process = process;
  client.viewer = viewer;
  client.since = now;
  client.holdings.resize(state.devices.size());
  return client;
}

Answer reserve(State& state, ClientId id, DeviceIndex device, const Ask& ask, Time now) {
  Client& client = state.clients.at(id);
  const Job& job = state.jobs.at(client.job);
  const JobDevice& there = job.devices[device];
  bool context = ask.kind == Kind::overhead && ask.bytes == 0;
  if (ask.kind == Kind::imported) {  // charged to its exporter; kept to read NVML's figures right
    uint64_t& present = client.holdings[device].bytes[static_cast<size_t>(Kind::imported)];
    present += std::min(ask.bytes, less(state.devices[device].total, present));
    return {Verdict::granted, ask.bytes, ask.bytes, available(state, job, device), there.leaving, false, ""};
  }
  Answer answer;
  answer.asked = context ? state.devices[device].context_cost : ask.bytes;
  answer.available = available(state, job, device);
  answer.leaving = there.leaving;
  if (context && ask.force != Force::taken) {
    ContextLeave leave = context_leave(state, client, device);
    if (!leave.given) {
      answer.verdict = Verdict::unavailable;
      answer.soon = leave.soon;
      answer.why = std::move(leave.why);
      return answer;
    }
  }
  if (ask.force == Force::taken) answer.asked = std::min(answer.asked, beyond_quota(state, job, device));
  bool passes = answer.asked <= answer.available || ask.force == Force::taken ||
                (ask.force == Force::first_context && context && !has_overhead(state, job, device) &&
                 answer.asked <= beyond_quota(state, job, device));
  if (!passes) {
    bool quota_says_no = there.quota ? answer.asked > less(*there.quota, there.used) : has_quota(job);
    answer.verdict = quota_says_no ? Verdict::over_quota : Verdict::device_full;
    if (!quota_says_no)  // then what leaves in any job helps
      for (const auto& entry : state.jobs)
        answer.leaving += entry.first == job.id ? 0 : entry.second.devices[device].leaving;
    return answer;
  }
  Holding& holding = client.holdings[device];
  set_bytes(state, client, device, ask.kind, holding.bytes[static_cast<size_t>(ask.kind)] + answer.asked);
  holding.changed = now;
  answer.bytes = answer.asked;
  answer.available = available(state, job, device);
  return answer;
}

uint64_t release(State& state, ClientId id, DeviceIndex device, Kind kind, uint64_t bytes, Time now) {
  Client& client = state.clients.at(id);
  Holding& holding = client.holdings[device];
  uint64_t present = holding.bytes[static_cast<size_t>(kind)];
  uint64_t released = std::min(present, bytes);
  set_bytes(state, client, device, kind, present - released);
  holding.changed = now;
  return released;
}

void begin_holdings(State& state, ClientId id) {
  Client& client = state.clients.at(id);
  for (DeviceIndex device = 0; device < client.holdings.size(); ++device) {
    for (size_t kind = 0; kind < kKinds; ++kind) set_bytes(state, client, device, static_cast<Kind>(kind), 0);
    client.holdings[device].refreshed = true;
  }
}

void add_holding(State& state, ClientId id, DeviceIndex device, Kind kind, uint64_t bytes, Time now) {
  Client& client = state.clients.at(id);
  Holding& holding = client.holdings[device];
  uint64_t present = holding.bytes[static_cast<size_t>(kind)];
  // Claims beyond what a reservation could have got are cut; what is really there comes back through NVML.
  uint64_t most = kind == Kind::imported ? less(state.devices[device].total, present)
                                         : beyond_quota(state, state.jobs.at(client.job), device);
  set_bytes(state, client, device, kind, present + std::min(bytes, most));
  holding.changed = now;
}

void set_silent(State& state, ClientId id, Time now) {
  Client& client = state.clients.at(id);
  client.state = ClientState::silent;
  client.since = now;
}

void set_attached(State& state, ClientId id, Time now) {
  Client& client = state.clients.at(id);
  client.state = ClientState::attached;
  client.since = now;
}

void client_died(State& state, ClientId id, Time now) {
  Client& client = state.clients.at(id);
  if (client.state == ClientState::leaving) return;
  uint64_t sum = 0;
  for (DeviceIndex device = 0; device < client.holdings.size(); ++device) {
    state.jobs.at(client.job).devices[device].leaving += held(client.holdings[device]);
    sum += held(client.holdings[device]);
  }
  if (sum == 0) {
    state.clients.erase(id);
    return;
  }
  client.state = ClientState::leaving;
  client.since = now;
}

bool anything_leaving(const State& state) {
  return std::any_of(state.clients.begin(), state.clients.end(),
                     [](const auto& entry) { return entry.second.state == ClientState::leaving; });
}

}  // namespace berth::policy
