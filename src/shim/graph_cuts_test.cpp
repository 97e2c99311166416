#include "shim/graph_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace berth::shim {
namespace {

struct Cuts {
  bool good = false;
  std::vector<uint32_t> order;
  std::vector<uint8_t> ends;
};

Cuts cuts_of(uint32_t nodes, const std::vector<GraphEdge>& edges) {
  Cuts cuts{false, std::vector<uint32_t>(nodes), std::vector<uint8_t>(nodes, 9)};
  size_t words = cut_scratch_words(nodes, edges.size());
  std::vector<uint32_t> scratch(words + 1, 0xdeadbeef);  // one more, to see whether it stays
  cuts.good = find_cuts(nodes, edges.data(), edges.size(), cuts.order.data(), cuts.ends.data(), scratch.data());
  EXPECT_EQ(scratch[words], 0xdeadbeefu);
  return cuts;
}

std::vector<std::vector<bool>> precedence(uint32_t nodes, const std::vector<GraphEdge>& edges) {
  std::vector<std::vector<bool>> before(nodes, std::vector<bool>(nodes));
  for (const GraphEdge& edge : edges) before[edge.from][edge.to] = true;
  for (uint32_t k = 0; k < nodes; ++k)
    for (uint32_t i = 0; i < nodes; ++i)
      for (uint32_t j = 0; before[i][k] && j < nodes; ++j)
        if (before[k][j]) before[i][j] = true;
  return before;
}

// By the definition, in any time.
void expect_right(uint32_t nodes, const std::vector<GraphEdge>& edges, const Cuts& cuts) {
  ASSERT_TRUE(cuts.good);
  std::vector<uint32_t> sorted = cuts.order, all(nodes), place(nodes);
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  ASSERT_EQ(sorted, all);
  for (uint32_t at = 0; at < nodes; ++at) place[cuts.order[at]] = at;
  for (const GraphEdge& edge : edges) ASSERT_LT(place[edge.from], place[edge.to]);
  auto before = precedence(nodes, edges);
  auto is_cut = [&](uint32_t at) {
    for (uint32_t other = 0; other < nodes; ++other) {
      uint32_t a = cuts.order[std::min(at, other)], b = cuts.order[std::max(at, other)];
      if (at != other && !before[a][b]) return false;
    }
    return true;
  };
  for (uint32_t at = 0; at < nodes; ++at) {
    bool expected = at + 1 == nodes || is_cut(at) || is_cut(at + 1);
    ASSERT_EQ(cuts.ends[at], expected) << "place " << at << " of " << nodes;
    if (!expected) continue;
    for (uint32_t i = 0; i <= at; ++i)  // what an end means
      for (uint32_t j = at + 1; j < nodes; ++j) ASSERT_TRUE(before[cuts.order[i]][cuts.order[j]]);
  }
}

std::vector<uint32_t> parts_of(const std::vector<uint8_t>& ends, uint32_t wanted) {
  std::vector<uint32_t> stops(wanted);
  stops.resize(choose_parts(static_cast<uint32_t>(ends.size()), ends.data(), wanted, stops.data()));
  return stops;
}

}  // namespace

TEST(GraphCuts, AChainCanBeCutAnywhere) {
  Cuts cuts = cuts_of(5, {{3, 1}, {4, 3}, {1, 0}, {0, 2}});
  EXPECT_EQ(cuts.order, (std::vector<uint32_t>{4, 3, 1, 0, 2}));
  EXPECT_EQ(cuts.ends, (std::vector<uint8_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(cuts_of(1, {}).ends, (std::vector<uint8_t>{1}));
}

TEST(GraphCuts, ADiamondIsCutBehindItsForkAndBeforeItsJoin) {
  Cuts cuts = cuts_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  EXPECT_EQ(cuts.ends, (std::vector<uint8_t>{1, 0, 1, 1}));
  // With an edge that says nothing new.
  EXPECT_EQ(cuts_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 3}, {0, 3}}).ends, (std::vector<uint8_t>{1, 0, 1, 1}));
}

TEST(GraphCuts, WhatRunsSideBySideIsNotCut) {
  EXPECT_EQ(cuts_of(3, {}).ends, (std::vector<uint8_t>{0, 0, 1}));
  EXPECT_EQ(cuts_of(4, {{0, 1}, {2, 3}}).ends, (std::vector<uint8_t>{0, 0, 0, 1}));
  // One that bypasses the middle of a chain, and one that nobody waits for.
  EXPECT_EQ(cuts_of(5, {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {4, 3}}).ends[2], 0);
  EXPECT_EQ(cuts_of(4, {{0, 1}, {1, 2}, {0, 3}}).ends, (std::vector<uint8_t>{1, 0, 0, 1}));
}

TEST(GraphCuts, WhatIsNoOrderIsRefused) {
  EXPECT_FALSE(cuts_of(2, {{0, 1}, {1, 0}}).good);
  EXPECT_FALSE(cuts_of(1, {{0, 0}}).good);
  EXPECT_FALSE(cuts_of(3, {{0, 1}, {1, 2}, {2, 1}}).good);
  EXPECT_FALSE(cuts_of(2, {{0, 2}}).good);
  EXPECT_FALSE(cuts_of(2, {{5, 1}}).good);
}

TEST(GraphCuts, RandomGraphsAreCutWhereTheDefinitionSays) {
  std::mt19937 random(20261201);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  uint32_t inner_ends = 0;
  for (int round = 0; round < 3000; ++round) {
    uint32_t nodes = 1 + below(24);
    std::vector<uint32_t> names(nodes);
    std::iota(names.begin(), names.end(), 0);
    std::shuffle(names.begin(), names.end(), random);
    std::vector<GraphEdge> edges;
    uint32_t density = below(4);
    for (uint32_t i = 0; i + 1 < nodes; ++i) {
      if (below(10) < 3 * density) edges.push_back({names[i], names[i + 1]});  // mostly a chain, at the densest
      for (uint32_t more = below(density + 1); more > 0; --more)
        edges.push_back({names[i], names[i + 1 + below(nodes - i - 1)]});
    }
    std::shuffle(edges.begin(), edges.end(), random);
    Cuts cuts = cuts_of(nodes, edges);
    expect_right(nodes, edges, cuts);
    if (HasFatalFailure()) return;
    inner_ends += static_cast<uint32_t>(std::count(cuts.ends.begin(), cuts.ends.end(), 1)) - 1;
  }
  EXPECT_GT(inner_ends, 3000u) << "the graphs are of no use for this";
}

TEST(GraphCuts, PartsAreAboutEqual) {
  std::vector<uint8_t> chain(100, 1);
  EXPECT_EQ(parts_of(chain, 4), (std::vector<uint32_t>{25, 50, 75, 100}));
  EXPECT_EQ(parts_of(chain, 1), (std::vector<uint32_t>{100}));
  EXPECT_EQ(parts_of(std::vector<uint8_t>(3, 1), 10), (std::vector<uint32_t>{1, 2, 3}));
  std::vector<uint8_t> few(100, 0);
  few[99] = few[30] = few[80] = 1;
  EXPECT_EQ(parts_of(few, 2), (std::vector<uint32_t>{31, 100}));  // of 31 and 81, what is nearer to the half
  EXPECT_EQ(parts_of(few, 4), (std::vector<uint32_t>{31, 81, 100}));
  few[30] = few[80] = 0;
  EXPECT_EQ(parts_of(few, 8), (std::vector<uint32_t>{100}));
}

TEST(GraphCuts, PartsEndWhereTheyMay) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> ends(1 + random() % 60);
    for (uint8_t& end : ends) end = random() % 4 == 0;
    ends.back() = 1;
    auto wanted = static_cast<uint32_t>(1 + random() % 20);
    std::vector<uint32_t> stops = parts_of(ends, wanted);
    ASSERT_LE(stops.size(), wanted);
    uint32_t before = 0;
    for (uint32_t stop : stops) {
      ASSERT_GT(stop, before);
      ASSERT_EQ(ends[stop - 1], 1);
      before = stop;
    }
    ASSERT_EQ(before, ends.size());
    if (wanted > 1) {
      EXPECT_EQ(stops.size() > 1, std::count(ends.begin(), ends.end(), 1) > 1) << "what can be cut is cut";
    }
  }
}

}  // namespace berth::shim
