// What a job's guests have to do about their submissions on a device, by who else is there: nothing as long as the job
// is alone, so that nobody pays for what isn't needed. Plain functions over plain state.
#pragma once
#include "policy/scheduler.h"

namespace berth::policy {

inline constexpr Time kRecent = std::chrono::seconds(5);  // equals that were both active in this time take turns
inline constexpr Time kWindowAmongEquals = std::chrono::milliseconds(1);

struct Gate {
  bool track = false;  // gather submissions into batches and publish them
  bool hold = false;   // and let batches wait on the device until they may go
  Time window{0};      // GPU time of a batch
  auto operator<=>(const Gate&) const = default;
};

// The gate of a job of `turns`, all of whose contenders count, and `latency_target` as configured.
Gate gate_of(const DeviceTurns& turns, JobId job, Time now, Time latency_target);

// Has the job work now, or had it of late?
bool is_recent(const Contender& contender, Time now);

}  // namespace berth::policy
