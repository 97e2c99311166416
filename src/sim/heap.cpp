#include "sim/heap.h"

namespace berth::sim {

uint64_t SmallHeap::take(int card, uint64_t bytes, PhysicalRef* physical, uint64_t* offset) {
  bytes = (bytes + kSmallGrain - 1) / kSmallGrain * kSmallGrain;
  auto cut = [&](uint64_t address, Block& block, std::map<uint64_t, uint64_t>::iterator gap) {
    *offset = gap->first;
    *physical = block.physical;
    if (gap->second > bytes) block.gaps[gap->first + bytes] = gap->second - bytes;
    block.gaps.erase(*offset);
    return address + *offset;
  };
  for (auto& [address, block] : blocks_)
    for (auto gap = block.gaps.begin(); gap != block.gaps.end(); ++gap)
      if (gap->second >= bytes) return cut(address, block, gap);
  PhysicalRef memory = take_physical(card, kPageBytes);
  if (!memory) return 0;
  uint64_t address = take_addresses(kPageBytes);
  if (!address || !map_physical(*memory, 0, kPageBytes, address)) return 0;
  Block& block = blocks_[address];
  block.physical = memory;
  block.gaps[0] = kPageBytes;
  return cut(address, block, block.gaps.begin());
}

void SmallHeap::give(uint64_t address, uint64_t bytes) {
  bytes = (bytes + kSmallGrain - 1) / kSmallGrain * kSmallGrain;
  auto at = blocks_.find(block_of(address));
  if (at == blocks_.end()) return;
  auto& gaps = at->second.gaps;
  uint64_t offset = address - at->first;
  auto next = gaps.upper_bound(offset);
  if (next != gaps.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = gaps.erase(next);
  }
  if (next != gaps.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    --next;
    next->second += bytes;
  } else {
    next = gaps.emplace(offset, bytes).first;
  }
  if (next->second < kPageBytes) return;
  unmap(at->first, kPageBytes);
  give_addresses(at->first, kPageBytes);
  blocks_.erase(at);
}

}  // namespace berth::sim
