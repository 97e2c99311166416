#include "policy/reconcile.h"

#include <algorithm>
#include <map>
#include <set>

#include "policy/accounts.h"

namespace berth::policy {
namespace {

constexpr size_t kOverhead = static_cast<size_t>(Kind::overhead);
constexpr size_t kManaged = static_cast<size_t>(Kind::managed);
constexpr size_t kImported = static_cast<size_t>(Kind::imported);

// Where NVML can't list processes, dead ones are taken to be gone after this.
constexpr Time kGoneUnseen = std::chrono::seconds(1);

void empty_account(State& state, Client& client, DeviceIndex device) {
  for (size_t kind = 0; kind < kKinds; ++kind) set_bytes(state, client, device, static_cast<Kind>(kind), 0);
}

void learn_context_cost(Device& device, uint64_t overhead) {
  // Modules and stacks are in it too, so the least one seen is nearest to a bare context.
  if (overhead == 0 || (device.context_cost_learned && overhead >= device.context_cost)) return;
  device.context_cost = overhead;
  device.context_cost_learned = true;
}

// Managed memory may or may not be resident, and imports may or may not be listed here; so NVML's figure bounds the
// overhead from both sides. A grant that the
// driver has not used yet makes the account larger than NVML's figure; so overhead sinks only in quiet accounts.
std::optional<Drift> correct_overhead(State& state, Client& client, DeviceIndex device, uint64_t nvml, Time now) {
  Holding& holding = client.holdings[device];
  uint64_t managed = holding.bytes[kManaged], imported = holding.bytes[kImported];
  uint64_t before = holding.bytes[kOverhead], account = held(holding);
  uint64_t least = less(nvml, std::max(holding.peak, counted(holding)) + imported);
  uint64_t most = less(nvml, surely_resident(holding));
  bool quiet = now - holding.changed >= kQuiet && holding.peak == counted(holding);
  bool refreshed = std::exchange(holding.refreshed, false);
  uint64_t overhead = before < least ? least : before > most && quiet ? most : before;
  if (overhead != before) set_bytes(state, client, device, Kind::overhead, overhead);
  if (client.state == ClientState::escaped) return std::nullopt;
  // Before a client has reported after a restart, all that it holds looks like overhead.
  bool reported = client.state == ClientState::attached && now - client.since >= kQuiet;
  if (reported && quiet && managed == 0 && imported == 0) learn_context_cost(state.devices[device], overhead);

  bool grew = overhead > before + kDriftBytes && before > 0 && !refreshed;
  bool absent = quiet && surely_resident(holding) > nvml + kDriftBytes;
  if (!grew && !absent) {
    holding.drift_told = false;
    return std::nullopt;
  }
  if (std::exchange(holding.drift_told, true) && !grew) return std::nullopt;
  return Drift{client.id, account, nvml};
}

// What of an unlisted client's bytes is in the device's figure all the same: nothing if NVML would list it (a grant
// that the driver has not used yet), all if NVML can't see the process.
uint64_t unseen_bytes(const Holding& holding, const Reading& reading, Time now) {
  bool invisible = !reading.lists_processes || (!holding.listed && now - holding.changed >= kQuiet);
  return invisible ? held(holding) : 0;
}

// Leaving and silent clients whom NVML no longer lists hold nothing: the driver has let go (also at exec, which keeps
// pid and start time).
bool has_let_go(const Client& client, DeviceIndex device, const Reading& reading) {
  if (client.since > reading.began) return false;
  if (client.state == ClientState::leaving)
    return reading.lists_processes || reading.began - client.since >= kGoneUnseen;
  if (client.state == ClientState::escaped) return true;
  return client.state == ClientState::silent && client.holdings[device].listed;
}

// A living client that NVML no longer lists, and that holds no memory: its contexts are gone, and with them whatever NVML had
// found beyond its own count. Not while an account has just changed: a context that is being made isn't listed yet.
bool has_no_contexts(const Client& client, const Holding& holding, const Reading& reading, Time now) {
  return client.state == ClientState::attached && reading.lists_processes && holding.listed && counted(holding) == 0 &&
         now - holding.changed >= kQuiet;
}

}  // namespace

void begin_reading(State& state) {
  for (auto& [id, client] : state.clients)
    for (Holding& holding : client.holdings) holding.peak = counted(holding);
}

std::vector<Drift> apply_reading(State& state, DeviceIndex device, const Reading& reading, Time now) {
  std::map<pid_t, const ProcessUse*> listed;
  for (const ProcessUse& use : reading.processes) listed[use.pid] = &use;
  std::set<pid_t> living;
  for (const auto& [id, client] : state.clients)
    if (client.state != ClientState::leaving) living.insert(client.process.pid);

  std::vector<Drift> drifts;
  std::vector<ClientId> gone;
  uint64_t managed_by_us = 0;
  for (auto& [id, client] : state.clients) {
    if (client.viewer) continue;
    Holding& holding = client.holdings[device];
    auto use = listed.find(client.process.pid);
    // A living client with the pid of a leaving one: the number was given anew, the listing is the living one's.
    bool reused = client.state == ClientState::leaving && living.contains(client.process.pid);
    if (use == listed.end() || reused) {
      if (has_let_go(client, device, reading)) empty_account(state, client, device), holding.listed = false;
      if (has_no_contexts(client, holding, reading, now)) {
        set_bytes(state, client, device, Kind::overhead, 0);
        holding.listed = false;
      }
    } else {
      holding.listed = true;
      if (use->second->bytes && client.state != ClientState::leaving)
        if (auto drift = correct_overhead(state, client, device, *use->second->bytes, now)) drifts.push_back(*drift);
    }
    if (use == listed.end() || reused)
      managed_by_us += unseen_bytes(holding, reading, now);
    else
      managed_by_us += use->second->bytes.value_or(held(holding));
    auto empty = [](const Holding& h) { return held(h) == 0; };
    if (client.state == ClientState::leaving && std::all_of(client.holdings.begin(), client.holdings.end(), empty))
      gone.push_back(id);
  }
  for (ClientId id : gone) state.clients.erase(id);
  state.devices[device].unmanaged = less(reading.used, managed_by_us);
  return drifts;
}

}  // namespace berth::policy
