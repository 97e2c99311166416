// How much service a job has had of late: the last second in steps of 1 ms, for limits that hold in every second, and
// the last minute in steps of 1 s. The clock is an argument and must not go back.
#pragma once
#include <array>

#include "policy/state.h"

namespace berth::policy {

struct ServiceHistory {
  static constexpr int kMilliseconds = 1000, kSeconds = 60;
  std::array<Time, kMilliseconds> steps{};
  std::array<Time, kSeconds> seconds{};
  Time in_second{0}, in_minute{0};  // sums of what is kept
  int64_t step = 0, second = 0;     // the ones that are being filled, counted from the clock's start
  Time began{-1};                   // of the record; negative: there is none yet
};

// Forgets what is too old at `now`; the sums are then those of the last second and the last minute.
void advance(ServiceHistory& history, Time now);

// `service` may be negative: a correction of what was added before.
void add(ServiceHistory& history, Time now, Time service);

// Part of the device's time, 0 to 1, in the last second or minute, or since the record began if that is less.
double second_ratio(ServiceHistory& history, Time now);
double minute_ratio(ServiceHistory& history, Time now);

}  // namespace berth::policy
