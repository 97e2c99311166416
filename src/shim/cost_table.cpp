#include "shim/cost_table.h"

namespace berth::shim {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int64_t kFarTooLong = 1280, kFarTooShort = 820;  // of 1024
constexpr uint16_t kInARow = 12;
constexpr uint64_t kLongestNs = 4'000'000'000;

void set(Cost* cost, uint64_t length) {
  cost->length_ns.store(static_cast<uint32_t>(length < 500 ? 500 : length > kLongestNs ? kLongestNs : length), kRelaxed);
  uint16_t measures = cost->measures.load(kRelaxed);
  if (measures < 1000) cost->measures.store(static_cast<uint16_t>(measures + 1), kRelaxed);
}

}  // namespace

void BatchContent::add(Cost* one) {
  if (!one) overflow = true;
  if (overflow) return;
  for (uint32_t i = 0; i < kinds; ++i)
    if (cost[i] == one) {
      if (count[i] < 0xffff) ++count[i];
      return;
    }
  if (kinds == kMost) {
    overflow = true;
    return;
  }
  cost[kinds] = one;
  count[kinds++] = 1;
}

Cost* CostTable::find(uint64_t key) {
  uint32_t at = static_cast<uint32_t>(key >> 20) % kEntries;
  for (uint32_t tries = 0; tries < 64; ++tries, at = (at + 1) % kEntries) {
    Cost& cost = entries_[at];
    uint64_t there = cost.key.load(std::memory_order_acquire);
    if (there == key) return &cost;
    if (there != 0) continue;
    uint64_t free = 0;
    if (cost.key.compare_exchange_strong(free, key, std::memory_order_acq_rel)) {
      cost.length_ns.store(kUnknownNs, kRelaxed);
      return &cost;
    }
    if (free == key) return &cost;
  }
  return nullptr;
}

void CostTable::learn(const BatchContent& batch, uint64_t measured_ns, uint64_t submitting_ns) {
  if (batch.overflow || batch.kinds == 0) return;
  bool at_most = submitting_ns > measured_ns / 2;
  uint64_t least = measured_ns > submitting_ns ? measured_ns - submitting_ns : 0;
  uint64_t known = 0, unknown = 0, expected = 0;
  for (uint32_t i = 0; i < batch.kinds; ++i) {
    uint64_t length = static_cast<uint64_t>(length_ns(batch.cost[i])) * batch.count[i];
    expected += length;
    if (is_known(batch.cost[i])) known += length;
    else unknown += batch.count[i];
  }
  if (unknown) {
    // At least a little is theirs, however much the known ones were thought to take.
    uint64_t theirs = measured_ns > known + measured_ns / 8 ? measured_ns - known : measured_ns / 8;
    // A caller that is slow to submit has short kernels rather than long ones.
    if (at_most && theirs / unknown > kUnknownNs) {
      theirs = kUnknownNs * unknown;
      if (least > known + theirs) theirs = least - known;
    }
    for (uint32_t i = 0; i < batch.kinds; ++i)
      if (!is_known(batch.cost[i])) set(batch.cost[i], theirs / unknown);
    return;
  }
  if (expected == 0) return;
  if (at_most && measured_ns > expected) measured_ns = least > expected ? least : expected;
  // The factor in 1/1024. Near what was expected, the same part of the way up and down: the mean is what is wanted. Else half
  // of the way down, and up only when that goes on.
  int64_t factor = static_cast<int64_t>(measured_ns * 1024 / expected);
  if (factor > 4096) factor = 4096;
  int64_t step = (factor - 1024) / (factor < kFarTooShort ? 2 : 8);
  for (uint32_t i = 0; i < batch.kinds; ++i) {
    uint16_t long_ones = batch.cost[i]->long_ones.load(kRelaxed);
    bool too_long = factor > kFarTooLong;
    batch.cost[i]->long_ones.store(static_cast<uint16_t>(too_long ? long_ones + (long_ones < kInARow) : 0), kRelaxed);
    if (too_long && long_ones < kInARow) continue;
    int64_t length = static_cast<int64_t>(length_ns(batch.cost[i]));
    set(batch.cost[i], static_cast<uint64_t>(length + length * (too_long ? factor - 1024 : step) / 1024));
  }
}

}  // namespace berth::shim
