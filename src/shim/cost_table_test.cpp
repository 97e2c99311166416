// Lengths learned from batches, next to the true ones.
#include "shim/cost_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace berth::shim {
namespace {

class CostTableTest : public testing::Test {
 protected:
  // A batch of `count` kernels of each key; `factor` on the measure, of which the caller took the part `submitting`.
  void batch(std::vector<std::pair<uint64_t, uint64_t>> key_and_length, int count, double factor = 1, double submitting = 0) {
    BatchContent content;
    content.clear();
    uint64_t sum = 0;
    for (auto [key, length] : key_and_length)
      for (int i = 0; i < count; ++i) {
        content.add(table->find(key << 20));
        sum += length;
      }
    double measured = static_cast<double>(sum) * factor;
    CostTable::learn(content, static_cast<uint64_t>(measured), static_cast<uint64_t>(measured * submitting));
  }
  double length(uint64_t key) { return CostTable::length_ns(table->find(key << 20)); }
  std::unique_ptr<CostTable> table = std::make_unique<CostTable>();
};

TEST_F(CostTableTest, AFirstMeasureIsTaken) {
  EXPECT_EQ(length(1), CostTable::kUnknownNs);
  batch({{1, 50'000}}, 4);
  EXPECT_EQ(length(1), 50'000);
  batch({{1, 50'000}, {2, 10'000}}, 4);  // the rest is the unknown one's
  EXPECT_NEAR(length(2), 10'000, 100);
}

TEST_F(CostTableTest, ScatterDoesNotPullDown) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> scatter(0.85, 1.15);
  batch({{1, 50'000}}, 1);
  for (int i = 0; i < 1000; ++i) batch({{1, 50'000}}, 4, scatter(random));
  EXPECT_NEAR(length(1), 50'000, 4'000);
}

TEST_F(CostTableTest, ForeignSlicesDoNotPullUp) {
  std::mt19937 random(1);
  batch({{1, 50'000}}, 4);
  for (int i = 0; i < 1000; ++i) batch({{1, 50'000}}, 4, random() % 4 == 0 ? 3.0 : 1.0);
  EXPECT_NEAR(length(1), 50'000, 2'000);
}

TEST_F(CostTableTest, AWrongStartIsMendedInBothDirections) {
  batch({{1, 400'000}}, 1);  // measured while something else ran
  for (int i = 0; i < 20; ++i) batch({{1, 50'000}}, 4);
  EXPECT_NEAR(length(1), 50'000, 5'000);
  batch({{2, 5'000}}, 1);
  for (int i = 0; i < 40; ++i) batch({{2, 50'000}}, 4);
  EXPECT_NEAR(length(2), 50'000, 5'000);
}

TEST_F(CostTableTest, ASlowCallerTeachesNoLongerLengths) {
  batch({{1, 50'000}}, 4);
  for (int i = 0; i < 100; ++i) batch({{1, 50'000}}, 4, 1.2, 0.6);
  EXPECT_EQ(length(1), 50'000);
}

// The first launch of a graph takes the caller long; that does not make it a short graph.
TEST_F(CostTableTest, WhatTheCallerCannotExplainIsTheDevices) {
  batch({{1, 2'000'000}}, 1, 1, 0.6);
  EXPECT_EQ(length(1), 800'000);
  for (int i = 0; i < 60; ++i) batch({{1, 2'000'000}}, 1, 1, 0.05);
  EXPECT_NEAR(length(1), 2'000'000, 100'000);
}

TEST_F(CostTableTest, AFullTableHasNoEntryAndAGuess) {
  for (uint64_t key = 1; key < 20'000; ++key) table->find(key * 0x9e3779b97f4a7c15ull);
  Cost* none = nullptr;
  for (uint64_t key = 20'000; key < 30'000 && !none; ++key)
    if (!table->find(key * 0x9e3779b97f4a7c15ull)) none = reinterpret_cast<Cost*>(1);
  EXPECT_TRUE(none);
  EXPECT_EQ(CostTable::length_ns(nullptr), CostTable::kUnknownNs);
}

}  // namespace
}  // namespace berth::shim
