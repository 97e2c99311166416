#include "sim/process.h"

namespace berth::sim {

Process& process() {
  static auto* const the_process = new Process;
  return *the_process;
}

Range* find_range(uint64_t address) {
  auto& ranges = process().ranges;
  auto at = ranges.upper_bound(address);
  if (at == ranges.begin()) return nullptr;
  Range& range = (--at)->second;
  return address < range.start + range.bytes ? &range : nullptr;
}

bool device_may_use(uint64_t address, uint64_t bytes) {
  for (uint64_t end = address + bytes; address < end;) {
    const Range* range = find_range(address);
    if (!range || end < address || (range->kind == RangeKind::mapped && range->access != 3)) return false;
    address = range->start + range->bytes;
  }
  return true;
}

}  // namespace berth::sim
