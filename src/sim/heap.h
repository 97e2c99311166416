// Small allocations share blocks of 2 MiB, in pieces of 512 bytes, as on the real driver (recorded: up to and with 1
// MiB). An empty block goes back to the card at once.
#pragma once
#include <cstdint>
#include <map>

#include "sim/physical.h"

namespace berth::sim {

inline constexpr uint64_t kSmallLimit = 1ull << 20;
inline constexpr uint64_t kSmallGrain = 512;

class SmallHeap {
 public:
  // An address, with the memory behind it and the offset there; 0: out of memory.
  uint64_t take(int card, uint64_t bytes, PhysicalRef* physical, uint64_t* offset);
  void give(uint64_t address, uint64_t bytes);
  // The block of an address of this heap.
  uint64_t block_of(uint64_t address) const { return address / kPageBytes * kPageBytes; }

 private:
  struct Block {
    PhysicalRef physical;
    std::map<uint64_t, uint64_t> gaps;  // offset, bytes
  };
  std::map<uint64_t, Block> blocks_;
};

}  // namespace berth::sim
