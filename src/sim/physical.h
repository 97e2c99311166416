// Physical memory and addresses. A device pointer is a host address: pages of the card's file, mapped shared into a
// range that was reserved at cuInit. Host memory that the VMM calls make works the same way, on anonymous shared
// memory.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "sim/pages.h"

namespace berth::sim {

struct Physical {
  int card = -1;  // -1: host memory
  uint64_t bytes = 0;
  PageKind kind = PageKind::memory;
  Runs runs;
  void* host = nullptr;
  std::optional<ShareName> share;

  Physical() = default;
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  ~Physical();  // the pages go back, or this process leaves the share
};
using PhysicalRef = std::shared_ptr<Physical>;

// Null: out of memory.
PhysicalRef take_physical(int card, uint64_t bytes, PageKind kind = PageKind::memory);
PhysicalRef take_host_physical(uint64_t bytes);
// Makes it shareable, if it is not already; joins memory that is shared. A process holds a share once, through one
// Physical. Under the process's mutex.
bool make_shared_physical(const PhysicalRef& physical);
PhysicalRef open_shared_physical(const ShareName& name);

// Addresses are whole pages of 2 MiB. A wish is met if it is free. 0: no more addresses.
void reserve_addresses();  // at cuInit
uint64_t take_addresses(uint64_t bytes, uint64_t alignment = kPageBytes, uint64_t wish = 0);
uint64_t take_low_addresses(uint64_t bytes);  // for the calls of the 32-bit interface
void give_addresses(uint64_t address, uint64_t bytes);

// Shows `bytes` of the memory, from `offset` on, at the address; false when the system refuses. Unmapped addresses stay
// reserved.
bool map_physical(const Physical& physical, uint64_t offset, uint64_t bytes, uint64_t address);
bool map_private(uint64_t address, uint64_t bytes);  // zeroed host memory (managed memory lives here)
void unmap(uint64_t address, uint64_t bytes);

}  // namespace berth::sim
