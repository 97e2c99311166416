// The company that lower work may keep, from the busy periods of a higher job.
#include "policy/latency_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace berth::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A busy period of `length` alone as ticks of 1 ms see it, then `idle` ticks.
void period(LatencyBudget& budget, Time length, int idle = 3) {
  for (Time left = length; left > Time(0); left -= milliseconds(1))
    observe(budget, {milliseconds(1), left > milliseconds(1), std::min<Time>(left, milliseconds(1)), 1});
  for (int i = 0; i < idle; ++i) observe(budget, {milliseconds(1), false, Time(0), 0});
}

}  // namespace

TEST(LatencyBudget, NoneUntilEnoughIsKnownAndNoneWhenStrict) {
  LatencyBudget budget;
  for (size_t i = 0; i + 1 < kLeastPeriods; ++i) period(budget, milliseconds(10));
  EXPECT_EQ(company(budget, 1.5, Time(0)), Time(0));
  period(budget, milliseconds(10));
  EXPECT_EQ(company(budget, 1.5, Time(0)), milliseconds(10));
  EXPECT_EQ(company(budget, 1.1, microseconds(200)), milliseconds(2) - microseconds(200));
  EXPECT_EQ(company(budget, 1, Time(0)), Time(0));
  EXPECT_EQ(company(budget, 0.5, Time(0)), Time(0));
  EXPECT_EQ(company(budget, 1.01, milliseconds(1)), Time(0));
}

// Whatever the lengths: with T from the budget, the slowest hundredth of the periods stays within the slowdown.
TEST(LatencyBudget, ThePredictedNinetyNinthPercentileIsKept) {
  std::mt19937 random(7);
  for (double mean : {2.0, 8.0, 40.0})
    for (double slowdown : {1.05, 1.1, 1.5, 2.0}) {
      LatencyBudget budget;
      std::exponential_distribution<double> some(1 / mean);
      std::vector<double> alone, shared;
      for (int i = 0; i < 600; ++i) {
        alone.push_back(0.2 + some(random));
        period(budget, microseconds(static_cast<int64_t>(alone.back() * 1000)));
      }
      double most = std::chrono::duration<double, std::milli>(company(budget, slowdown, Time(0))).count();
      EXPECT_GT(most, 0);
      for (double length : alone) shared.push_back(length + std::min(length, most / 2));
      std::sort(alone.begin(), alone.end());
      std::sort(shared.begin(), shared.end());
      EXPECT_LE(shared[shared.size() * 99 / 100], slowdown * alone[alone.size() * 99 / 100]) << mean << " " << slowdown;
      // And the usual one, but for what the ticks of the last 512 of 600 periods don't tell.
      EXPECT_LE(shared[shared.size() / 2], 1.1 * slowdown * alone[alone.size() / 2]) << mean << " " << slowdown;
    }
}

TEST(LatencyBudget, ShortPeriodsBetweenTicksAreNotTakenForLongOnes) {
  LatencyBudget budget;  // ten requests of 50 us in each tick, seen busy at every other
  for (int i = 0; i < 400; ++i) observe(budget, {milliseconds(1), i % 2 == 0, microseconds(200), 4});
  EXPECT_LE(company(budget, 1.5, Time(0)), microseconds(400));
}

TEST(LatencyBudget, SlowTicksTellNothing) {
  LatencyBudget budget;
  for (int i = 0; i < 1000; ++i) observe(budget, {milliseconds(20), i % 2 == 0, milliseconds(10), 5});
  EXPECT_TRUE(budget.lengths.empty());
}

TEST(LatencyBudget, OldPeriodsAreForgotten) {
  LatencyBudget budget;
  for (size_t i = 0; i < kKeptPeriods; ++i) period(budget, milliseconds(50), 1);
  for (size_t i = 0; i < kKeptPeriods; ++i) period(budget, milliseconds(5), 1);
  EXPECT_EQ(budget.lengths.size(), kKeptPeriods);
  EXPECT_EQ(company(budget, 1.5, Time(0)), milliseconds(5));
}

}  // namespace berth::policy
