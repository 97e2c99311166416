#include "policy/compute_mode.h"

#include <algorithm>

#include "policy/accounts.h"
#include "policy/virtual_devices.h"

namespace berth::policy {
namespace {

std::string text_of(const Job& job) { return job.name + " (" + job.user + ")"; }

std::string text_of(const State& state, const Client& client) {
  return client.command + " (process " + std::to_string(client.process.pid) + ") of " +
         text_of(state.jobs.at(client.job));
}

// There is no memory without a context, and none without cost.
bool has_contexts(const Client& client, DeviceIndex device) {
  return !client.viewer && held(client.holdings[device]) > 0;
}

bool is_placed(const Job& job, DeviceIndex device) {
  return lives(job) && !job.is_default && job.devices[device].placed;
}

const Job* placed_job(const State& state, DeviceIndex device, JobId but) {
  for (const auto& [id, job] : state.jobs)
    if (id != but && is_placed(job, device)) return &job;
  return nullptr;
}

std::string prohibited_text(const State& state, DeviceIndex device) {
  bool by_card = state.devices[device].card_mode == ComputeMode::prohibited;
  return place_text(device) + " is closed to programs (compute mode prohibited, " +
         (by_card ? "set on the card" : "by berth's configuration") + ")";
}

}  // namespace

const char* to_string(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::shared:
      return "default";
    case ComputeMode::exclusive:
      return "exclusive";
    case ComputeMode::prohibited:
      return "prohibited";
  }
  return "?";
}

std::optional<ComputeMode> parse_compute_mode(std::string_view text) {
  for (ComputeMode mode : {ComputeMode::shared, ComputeMode::exclusive, ComputeMode::prohibited})
    if (text == to_string(mode)) return mode;
  if (text == "exclusive_process" || text == "exclusive_thread") return ComputeMode::exclusive;
  return std::nullopt;
}

ComputeMode compute_mode_of_driver(int mode) {
  return mode == 2 ? ComputeMode::prohibited : mode == 1 || mode == 3 ? ComputeMode::exclusive : ComputeMode::shared;
}

int driver_compute_mode(ComputeMode mode) {
  return mode == ComputeMode::prohibited ? 2 : mode == ComputeMode::exclusive ? 3 : 0;
}

ComputeMode compute_mode(const Device& device) { return std::max(device.configured_mode, device.card_mode); }

std::string has_device(const State& state, DeviceIndex device, JobId but) {
  if (compute_mode(state.devices[device]) != ComputeMode::exclusive) return "";
  if (const Job* job = placed_job(state, device, but)) return text_of(*job);
  for (const auto& [id, client] : state.clients)
    if (client.job != but && client.state != ClientState::leaving && has_contexts(client, device))
      return text_of(state, client);
  return state.devices[device].stranger;
}

bool is_open(const State& state, DeviceIndex device, JobId but) {
  return compute_mode(state.devices[device]) != ComputeMode::prohibited && has_device(state, device, but).empty();
}

std::string not_open_text(const State& state, DeviceIndex device, JobId but) {
  if (compute_mode(state.devices[device]) == ComputeMode::prohibited) return prohibited_text(state, device);
  return place_text(device) + " takes one job at a time (compute mode exclusive), and " +
         has_device(state, device, but) + " has it";
}

ContextLeave context_leave(const State& state, const Client& client, DeviceIndex device) {
  ComputeMode mode = compute_mode(state.devices[device]);
  if (mode == ComputeMode::shared || has_contexts(client, device)) return {};
  if (mode == ComputeMode::prohibited) return {false, false, prohibited_text(state, device)};
  auto held_by = [&](const std::string& who, bool soon) {
    return ContextLeave{false, soon, place_text(device) + " is exclusive and " + who + " has it"};
  };
  const Client* dead = nullptr;
  for (const auto& [id, other] : state.clients) {
    if (other.process == client.process || !has_contexts(other, device)) continue;
    if (other.state != ClientState::leaving) return held_by(text_of(state, other), false);
    dead = &other;
  }
  if (const Job* job = placed_job(state, device, client.job)) return held_by(text_of(*job), false);
  if (!state.devices[device].stranger.empty()) return held_by(state.devices[device].stranger, false);
  if (dead) return held_by(text_of(state, *dead), true);
  return {};
}

}  // namespace berth::policy
