// How long lower work may keep a higher job company at the beginning of its busy periods (PageDevice::company_ns), so
// that the higher one stays within its budget. Plain functions over plain state.
//
// Derivation. A busy period of a higher job that takes L alone, with company until the period is T old: while it lasts the
// hardware gives both the same part, so the job gets on by at least T / 2 and loses at most min(L, T / 2). All requests of
// a busy period are late by no more than that, so a request of length R is slower by at most (R + T / 2) / R. The budget
// holds for the usual request and not only for the slowest ones when R is the usual length: the median of the busy periods,
// most of which are a single request up to a load of about 0.7. For the slowest hundredth, which come from much longer
// periods, T / 2 <= (X - 1) R is then on the safe side. (With a high percentile in place of the median the budget for p99
// alone allows a T as long as a whole request; then most requests have company, the job's load doubles, and on an H200 a
// service at half load no longer kept up.) Work of the lower job that is in flight when the company ends (one window)
// counts as company.
//
// Bounds: company is 0 until kLeastPeriods have been seen, for X <= 1, and never below 0.
#pragma once
#include <vector>

#include "policy/state.h"

namespace berth::policy {

inline constexpr double kDefaultSlowdown = 1.1;  // 1: strict, no company at all
inline constexpr size_t kLeastPeriods = 50, kKeptPeriods = 512;

struct LatencyBudget {
  std::vector<Time> lengths;  // of the last busy periods, a ring
  size_t next = 0;
  Time length{0};  // of the one that goes on
  bool goes_on = false;
};

// What a tick saw of the job. A period is a row of ticks at which the job was busy, and its length the exclusive length
// of what it completed. Two periods between which no tick looked must not be taken for one long period, so a tick with
// far less service than time (company takes half of it at most) ends one; and where a tick saw only the traces of work,
// each completed batch counts as a period. Ticks longer than 2 ms tell nothing about lengths: they end a period,
// unrecorded.
struct BusyTick {
  Time elapsed{0};
  bool busy = false;  // now
  Time service{0};    // since the last tick
  uint64_t completed = 0;
};
void observe(LatencyBudget& budget, const BusyTick& tick);

// T for a budget of `slowdown` and lower work with windows of `window`.
Time company(const LatencyBudget& budget, double slowdown, Time window);

}  // namespace berth::policy
