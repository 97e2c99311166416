#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels_ptx.h"
#include "memory.h"
#include "timing.h"

namespace berth::load {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1.0);
  EXPECT_EQ(percentile(&values, 0.5), 50);
  EXPECT_EQ(percentile(&values, 0.99), 99);
  EXPECT_EQ(percentile(&values, 1), 100);
  std::vector<double> one{7}, none;
  EXPECT_EQ(percentile(&one, 0.5), 7);
  EXPECT_EQ(percentile(&none, 0.5), 0);
}

TEST(Arrivals, HaveTheRateAndAreRepeatable) {
  Arrivals first(50, 1), again(50, 1), other(50, 2);
  double sum = 0, sum_of_squares = 0;
  bool differs = false;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    double gap = first.next_gap();
    ASSERT_EQ(gap, again.next_gap());
    ASSERT_GE(gap, 0);
    differs |= gap != other.next_gap();
    sum += gap, sum_of_squares += gap * gap;
  }
  EXPECT_TRUE(differs);
  double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.02, 0.001);
  EXPECT_NEAR(sum_of_squares / kCount, 2 * mean * mean, 0.1 * mean * mean);  // exponential: E[x^2] = 2 E[x]^2
}

// Computed apart (Python) from the formula of berth_fill, so that device, simulated device and host cannot drift
// together.
TEST(Pattern, HasTheDocumentedValues) {
  EXPECT_EQ(pattern_word(0, 0), 0u);
  EXPECT_EQ(pattern_word(1, 0), 0x045d9b66u);
  EXPECT_EQ(pattern_word(7, 1), 0x4d883433u);
  EXPECT_EQ(pattern_word(0xffffffffu, 123456789), 0x3b35dca0u);
}

TEST(Kernels, AreAllThere) {
  for (const char* name : {"berth_fill(", "berth_check(", "berth_spin(", "berth_wait(", "berth_axpy("})
    EXPECT_TRUE(std::strstr(kKernelsPtx, (std::string(".visible .entry ") + name).c_str())) << name;
}

}  // namespace
}  // namespace berth::load
