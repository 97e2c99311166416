// When lower work waits for a client above it, by that client's busy periods and pauses.
#include "shim/rhythm.h"

#include <gtest/gtest.h>

#include <random>

namespace berth::shim {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000, kLook = 20 * kUs, kWindow = 200 * kUs;

class RhythmTest : public testing::Test {
 protected:
  // Looks every 20 us for so long; returns for how long the client came first.
  uint64_t pass(bool busy, uint64_t ns, uint32_t excess = 0) {
    uint64_t first = 0;
    for (uint64_t end = now + ns; now < end; now += kLook)
      if (rhythm.comes_first(busy, rhythm.company_ns(excess, kWindow), now)) first += kLook;
    return first;
  }
  void periods(int count, uint64_t busy, uint64_t idle) {
    for (int i = 0; i < count; ++i) {
      pass(true, busy);
      pass(false, idle);
    }
  }
  Rhythm rhythm{};
  uint64_t now = 1'000'000 * kMs;
};

TEST_F(RhythmTest, ABusyClientComesFirstAndAnIdleOneDoesNot) {
  EXPECT_EQ(pass(true, 5 * kMs), 5 * kMs);
  pass(false, kMs);
  EXPECT_EQ(pass(false, 5 * kMs), 0u);
}

TEST_F(RhythmTest, ShortPausesAreWaitedThroughOnceTheyAreUsual) {
  periods(100, kMs, 60 * kUs);
  pass(true, kMs);
  EXPECT_EQ(pass(false, 60 * kUs), 60 * kUs);
  // But not for ever.
  pass(false, kMs);
  EXPECT_EQ(pass(false, kMs), 0u);
}

TEST_F(RhythmTest, LongPausesAreNotWaitedFor) {
  periods(100, kMs, 3 * kMs);
  pass(true, kMs);
  EXPECT_EQ(pass(false, kMs), 0u);
}

TEST_F(RhythmTest, WithoutABudgetThereIsNoCompany) {
  periods(200, 5 * kMs, 3 * kMs);
  EXPECT_EQ(rhythm.company_ns(0, kWindow), 0u);
  EXPECT_EQ(pass(true, 5 * kMs), 5 * kMs);
}

TEST_F(RhythmTest, CompanyIsTheBudgetsPartOfTheUsualPeriodLessTheWindow) {
  periods(Rhythm::kLeastPeriods - 1, 5 * kMs, 3 * kMs);
  EXPECT_EQ(rhythm.company_ns(100, kWindow), 0u);  // too early to tell
  periods(200, 5 * kMs, 3 * kMs);
  // 2 x 0.1 x 5 ms - 0.2 ms; the classes are a fifth wide
  EXPECT_NEAR(static_cast<double>(rhythm.company_ns(100, kWindow)), 0.8e6, 0.13e6);
  EXPECT_NEAR(static_cast<double>(pass(true, 5 * kMs, 100)), 4.2e6, 0.13e6);
  // Long periods are the rarer ones: the usual request's budget is not theirs.
  for (int i = 0; i < 200; ++i) periods(1, i % 5 == 0 ? 50 * kMs : 5 * kMs, 3 * kMs);
  EXPECT_NEAR(static_cast<double>(rhythm.company_ns(100, kWindow)), 0.8e6, 0.13e6);
  // A window that is longer than the budget leaves none.
  EXPECT_EQ(rhythm.company_ns(10, kWindow), 0u);
}

TEST_F(RhythmTest, WhatIsUsualFollowsTheProgram) {
  periods(600, kMs, 3 * kMs);
  periods(600, 8 * kMs, 3 * kMs);
  EXPECT_NEAR(static_cast<double>(rhythm.company_ns(500, 0)), 8e6, 1e6);
}

TEST_F(RhythmTest, NobodyLookedForAWhile) {
  periods(100, 5 * kMs, 3 * kMs);
  pass(true, 5 * kMs);
  now += 100 * kMs;  // the busy period from before tells nothing about this one
  EXPECT_FALSE(rhythm.comes_first(true, rhythm.company_ns(100, kWindow), now));
  EXPECT_TRUE(rhythm.comes_first(true, rhythm.company_ns(0, kWindow), now += kLook));
}

TEST_F(RhythmTest, ExtremesStayInBounds) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    now += random() % (1ull << random() % 40);
    rhythm.comes_first(random() % 2, rhythm.company_ns(static_cast<uint32_t>(random()), random() % 2 ? 0 : ~0ull), now);
    ASSERT_LE(rhythm.company_ns(~0u, 0), 1'000'000'000u);
  }
}

}  // namespace
}  // namespace berth::shim
