#include "policy/memory.h"

#include <algorithm>

#include "policy/accounts.h"
#include "policy/compute_mode.h"

namespace berth::policy {
namespace {

bool has_overhead(const State& state, const Job& job, Place place) {
  return std::any_of(state.clients.begin(), state.clients.end(), [&](const auto& entry) {
    const Client& client = entry.second;
    return client.job == job.id && client.state != ClientState::leaving && bytes_of(client, place, Kind::overhead) > 0;
  });
}

// What a job may get beyond its quota without touching what others were promised; the headroom is there for it.
uint64_t beyond_quota(const State& state, const Job& job, Place place) {
  Use use = use_of(job, place);
  uint64_t own = place.virtual_device ? less(*use.quota, use.used) : less(promised(job, place.device), use.used);
  return std::min(unpromised(state, place.device) + own, idle(state, place.device));
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
  client.parts.resize(state.jobs.at(job).virtual_devices.size());
  return client;
}

Answer reserve(State& state, ClientId id, Place place, const Ask& ask, Time now) {
  Client& client = state.clients.at(id);
  const Job& job = state.jobs.at(client.job);
  const Use use = use_of(job, place);
  const uint64_t present = bytes_of(client, place, ask.kind);
  bool context = ask.kind == Kind::overhead && ask.bytes == 0;
  if (ask.kind == Kind::imported) {  // charged to its exporter; kept to read NVML's figures right
    uint64_t of_device = bytes_of(client, place.device, ask.kind);
    uint64_t more = std::min(ask.bytes, less(state.devices[place.device].total, of_device));
    set_bytes(state, client, place, ask.kind, present + more);
    return {Verdict::granted, ask.bytes, ask.bytes, available(state, job, place), use.leaving, false, ""};
  }
  Answer answer;
  answer.asked = context ? state.devices[place.device].context_cost : ask.bytes;
  answer.available = available(state, job, place);
  answer.leaving = use.leaving;
  if (context && ask.force != Force::taken) {
    ContextLeave leave = context_leave(state, client, place.device);
    if (!leave.given) {
      answer.verdict = Verdict::unavailable;
      answer.soon = leave.soon;
      answer.why = std::move(leave.why);
      return answer;
    }
  }
  if (ask.force == Force::taken) answer.asked = std::min(answer.asked, beyond_quota(state, job, place));
  bool passes = answer.asked <= answer.available || ask.force == Force::taken ||
                (ask.force == Force::first_context && context && !has_overhead(state, job, place) &&
                 answer.asked <= beyond_quota(state, job, place));
  if (!passes) {
    bool quota_says_no = use.quota ? answer.asked > less(*use.quota, use.used) : has_quota(job);
    answer.verdict = quota_says_no ? Verdict::over_quota : Verdict::device_full;
    if (!quota_says_no) {  // then what leaves anywhere on the device helps
      answer.leaving = 0;
      for (const auto& entry : state.jobs) answer.leaving += entry.second.devices[place.device].leaving;
    }
    return answer;
  }
  set_bytes(state, client, place, ask.kind, present + answer.asked);
  client.holdings[place.device].changed = now;
  answer.bytes = answer.asked;
  answer.available = available(state, job, place);
  return answer;
}

uint64_t release(State& state, ClientId id, Place place, Kind kind, uint64_t bytes, Time now) {
  Client& client = state.clients.at(id);
  uint64_t present = bytes_of(client, place, kind);
  uint64_t released = std::min(present, bytes);
  set_bytes(state, client, place, kind, present - released);
  client.holdings[place.device].changed = now;
  return released;
}

void begin_holdings(State& state, ClientId id) {
  Client& client = state.clients.at(id);
  for (DeviceIndex device = 0; device < client.holdings.size(); ++device) {
    for (size_t kind = 0; kind < kKinds; ++kind) set_bytes(state, client, device, static_cast<Kind>(kind), 0);
    client.holdings[device].refreshed = true;
  }
}

void add_holding(State& state, ClientId id, Place place, Kind kind, uint64_t bytes, Time now) {
  Client& client = state.clients.at(id);
  uint64_t present = bytes_of(client, place, kind);
  // Claims beyond what a reservation could have got are cut; what is really there comes back through NVML.
  uint64_t most = kind == Kind::imported ? less(state.devices[place.device].total, bytes_of(client, place.device, kind))
                                         : beyond_quota(state, state.jobs.at(client.job), place);
  set_bytes(state, client, place, kind, present + std::min(bytes, most));
  client.holdings[place.device].changed = now;
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
  Job& job = state.jobs.at(client.job);
  uint64_t sum = 0;
  for (DeviceIndex device = 0; device < client.holdings.size(); ++device) {
    job.devices[device].leaving += held(client.holdings[device]);
    sum += held(client.holdings[device]);
  }
  for (size_t v = 0; v < client.parts.size(); ++v) job.virtual_devices[v].leaving += held(client.parts[v]);
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
