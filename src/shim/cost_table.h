// Learned lengths of work, in nanoseconds of GPU time, by the key of what was submitted (work.h). Any thread, no lock; a
// number that two threads improve at once is only a little less improved.
//
// What is measured are whole batches, between two events of the driver: from where the device begins with it to its end. A
// batch's measure is shared out over what it was made of: what was unknown takes what the known ones leave; otherwise all are
// corrected by the same factor, so that programs that repeat themselves converge. A measure can be far too long (another
// process had a slice of the device, the caller was slow) but not far too short, so numbers fall fast, and a measure that is
// far too long counts only when many in a row are. Between the two both directions weigh the same: kernels of one key are
// not all of one length, and the mean of them is what fills a window.
#pragma once
#include <atomic>
#include <cstdint>

namespace berth::shim {

struct Cost {
  std::atomic<uint64_t> key;  // 0: free
  std::atomic<uint32_t> length_ns;
  std::atomic<uint16_t> measures;
  std::atomic<uint16_t> long_ones;  // measures in a row that were far too long
};

// What a batch is made of.
struct BatchContent {
  static constexpr uint32_t kMost = 48;
  Cost* cost[kMost];
  uint16_t count[kMost];
  uint32_t kinds;
  bool overflow;  // more kinds than fit: it teaches nothing

  void clear() { kinds = 0, overflow = false; }
  void add(Cost* one);
};

class CostTable {
 public:
  static constexpr uint32_t kUnknownNs = 20'000;

  // The entry of a key, made on first sight; null when the table is full.
  Cost* find(uint64_t key);
  static uint32_t length_ns(const Cost* cost) { return cost ? cost->length_ns.load(std::memory_order_relaxed) : kUnknownNs; }
  static bool is_known(const Cost* cost) { return cost && cost->measures.load(std::memory_order_relaxed) != 0; }

  // `submitting_ns`: how long the caller took to submit the batch; the device may have waited for it in between, so the
  // true length is at least the measured one less that.
  static void learn(const BatchContent& batch, uint64_t measured_ns, uint64_t submitting_ns);

 private:
  static constexpr uint32_t kEntries = 4096;
  Cost entries_[kEntries];
};

}  // namespace berth::shim
