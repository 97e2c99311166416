// Small states for the tests of src/policy.
#pragma once
#include <gtest/gtest.h>

#include "policy/accounts.h"
#include "policy/admission.h"
#include "policy/memory.h"
#include "policy/reconcile.h"
#include "policy/virtual_devices.h"

namespace berth::policy {

inline constexpr uint64_t kM = 1ull << 20, kG = 1ull << 30;

inline State make_state(size_t devices = 1, uint64_t total = 16 * kG) {
  State state;
  for (size_t i = 0; i < devices; ++i) {
    Device device;
    device.uuid_text = "GPU-0000000" + std::to_string(i) + "-0000-0000-0000-000000000000";
    device.total = total;
    state.devices.push_back(device);
  }
  return state;
}

inline Request make_request(const std::string& memory, const std::string& name = "") {
  Request request;
  request.name = name;
  request.user = "alice";
  request.uid = 1000;
  request.command = {"python3", "train.py"};
  request.memory = memory;
  return request;
}

inline Admission admit(State& state, const std::string& memory, bool wait = false, const std::string& name = "") {
  Request request = make_request(memory, name);
  request.may_wait = wait;
  return admit(state, request, Limits());
}

inline JobId admitted(const Admission& admission) {
  const auto* job = std::get_if<Admitted>(&admission);
  EXPECT_TRUE(job) << (std::holds_alternative<Error>(admission) ? std::get<Error>(admission).message : "queued");
  return job ? job->job : 0;
}

inline Error refused(const Admission& admission) {
  const auto* error = std::get_if<Error>(&admission);
  EXPECT_TRUE(error) << "was not refused";
  return error ? *error : Error{};
}

inline Admission admit_gpus(State& state, int64_t gpus, const std::string& memory, bool wait = false) {
  Request request = make_request(memory);
  request.gpus = gpus;
  request.may_wait = wait;
  return admit(state, request, Limits());
}

inline ClientId attach(State& state, JobId job, pid_t pid, Time now = Time(0)) {
  return add_client(state, job, {pid, 1}, false, now).id;
}

inline Answer reserve(State& state, ClientId client, uint64_t bytes, Kind kind = Kind::linear,
                      Force force = Force::none, Time now = Time(0)) {
  return reserve(state, client, 0, {kind, bytes, force}, now);
}

// The same of virtual devices: theirs are parts of their devices', and nothing on these is outside of them.
inline void expect_parts(const State& state, const Job& job) {
  std::vector<Use> made(job.virtual_devices.size());
  for (const auto& [number, client] : state.clients) {
    if (client.job != job.id) continue;
    ASSERT_EQ(client.parts.size(), job.virtual_devices.size());
    std::vector<Bytes> parts(state.devices.size());
    for (size_t v = 0; v < client.parts.size(); ++v) {
      made[v].used += held(client.parts[v]);
      if (client.state == ClientState::leaving) made[v].leaving += held(client.parts[v]);
      for (size_t kind = 0; kind < kKinds; ++kind) parts[job.virtual_devices[v].device][kind] += client.parts[v][kind];
    }
    for (DeviceIndex d = 0; d < state.devices.size(); ++d)
      if (!virtual_devices_on(job, d).empty()) {
        ASSERT_EQ(client.holdings[d].bytes, parts[d]);
      }
  }
  std::vector<uint64_t> quotas(state.devices.size());
  for (size_t v = 0; v < made.size(); ++v) {
    ASSERT_EQ(job.virtual_devices[v].used, made[v].used);
    ASSERT_EQ(job.virtual_devices[v].leaving, made[v].leaving);
    quotas[job.virtual_devices[v].device] += job.virtual_devices[v].quota;
  }
  for (DeviceIndex d = 0; d < state.devices.size() && !made.empty(); ++d)
    ASSERT_EQ(job.devices[d].quota.value_or(0), quotas[d]);
}

// Sums that are kept must equal sums that are made anew.
inline void expect_sums(const State& state) {
  for (DeviceIndex d = 0; d < state.devices.size(); ++d) {
    uint64_t device = 0;
    for (const auto& [id, job] : state.jobs) {
      uint64_t used = 0, leaving = 0;
      for (const auto& [number, client] : state.clients) {
        if (client.job != id) continue;
        used += held(client.holdings[d]);
        if (client.state == ClientState::leaving) leaving += held(client.holdings[d]);
      }
      ASSERT_EQ(job.devices[d].used, used);
      ASSERT_EQ(job.devices[d].leaving, leaving);
      device += used;
    }
    ASSERT_EQ(state.devices[d].used, device);
  }
  for (const auto& [id, job] : state.jobs) expect_parts(state, job);
}

}  // namespace berth::policy
