#include "policy/latency_budget.h"

#include <algorithm>

namespace berth::policy {
namespace {

constexpr Time kLongestTick = std::chrono::milliseconds(2);

void record(LatencyBudget& budget, Time length) {
  if (length <= Time(0)) return;
  if (budget.lengths.size() < kKeptPeriods)
    budget.lengths.push_back(length);
  else
    budget.lengths[budget.next] = length;
  budget.next = (budget.next + 1) % kKeptPeriods;
}

}  // namespace

void observe(LatencyBudget& budget, const BusyTick& tick) {
  bool was_busy = budget.goes_on;
  budget.goes_on = tick.busy;
  if (tick.elapsed > kLongestTick) {
    budget.length = Time(0);
    budget.goes_on = false;
    return;
  }
  if (!was_busy && !tick.busy) {
    if (tick.completed > 0) record(budget, tick.service / static_cast<int64_t>(tick.completed));
    return;
  }
  budget.length += tick.service;
  bool gap = was_busy && tick.busy && tick.completed > 0 && tick.service < tick.elapsed / 4;
  if (tick.busy && !gap) return;
  record(budget, std::exchange(budget.length, Time(0)));
}

Time company(const LatencyBudget& budget, double slowdown, Time window) {
  if (slowdown <= 1 || budget.lengths.size() < kLeastPeriods) return Time(0);
  std::vector<Time> sorted = budget.lengths;
  auto place = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), place, sorted.end());
  double most = 2 * (slowdown - 1) * static_cast<double>(place->count());
  return std::max(Time(0), Time(static_cast<int64_t>(std::min(most, 1e18))) - window);
}

}  // namespace berth::policy
