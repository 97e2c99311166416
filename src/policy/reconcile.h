// The check of accounts with what NVML says. Counted bytes are the clients'; what NVML lists beyond them is overhead.
#pragma once
#include "policy/state.h"

namespace berth::policy {

struct ProcessUse {
  pid_t pid = 0;
  std::optional<uint64_t> bytes;  // none: NVML lists the process and doesn't know its bytes
  bool computes = true;           // false: it only draws
  bool operator==(const ProcessUse&) const = default;
};
struct Reading {
  Time began{0};
  uint64_t used = 0;            // of the device, by whomever
  bool lists_processes = true;  // false where NVML can't
  std::vector<ProcessUse> processes;
};

// Call when a reading begins: what is granted and released while it runs is then allowed for.
void begin_reading(State& state);

// A client whose NVML figure differs from its account by more than kDriftBytes, and nothing announced it.
struct Drift {
  ClientId client = 0;
  uint64_t account_bytes = 0, nvml_bytes = 0;
};

// Takes a reading: corrects overhead, learns the cost of a context, frees what has left, sets the unmanaged bytes.
// Escaped processes must have been added as clients (state escaped) before.
std::vector<Drift> apply_reading(State& state, DeviceIndex device, const Reading& reading, Time now);

}  // namespace berth::policy
