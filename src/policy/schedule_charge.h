// The charging half of a tick; scheduler.h says what is charged and why. Only scheduler.cpp calls this.
#pragma once
#include <algorithm>

#include "policy/scheduler.h"

namespace berth::policy {

inline constexpr Time kLongestDrain = std::chrono::seconds(1);  // whatever is then still in flight is spinning

// A capped job runs in pulses of its share of kBucket, or of kLeastPulse: shorter ones could not be measured, since the
// batches in flight at their ends are only seen by ticks.
inline constexpr Time kBucket = std::chrono::milliseconds(20), kLeastPulse = std::chrono::milliseconds(4);

inline double in_seconds(Time time) { return std::chrono::duration<double>(time).count(); }
inline Time scaled(Time time, double factor) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(in_seconds(time) * factor));
}
inline Time pulse(double share) { return std::max(scaled(kBucket, share), kLeastPulse); }
inline size_t level_of(const Contender& contender) { return static_cast<size_t>(contender.share.priority); }

// Charges all contenders for the `elapsed` before `now`, in which Contender::held was in force.
void charge_elapsed(DeviceTurns& turns, const std::map<JobId, Sighting>& sightings, Time elapsed, Time now,
                    const TurnSettings& settings);

// The contender may run from now on, or has to stop; what it then shows in flight is its own bill.
void begin_run(Contender& contender);
void end_run(Contender& contender, const Sighting& sighting, Time now);

}  // namespace berth::policy
