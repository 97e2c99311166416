#include "shim/allocation_table.h"

namespace berth::shim {
namespace {

size_t hash(Space space, uint64_t key) {
  uint64_t mixed = (key ^ (static_cast<uint64_t>(space) << 56)) * 0x9e3779b97f4a7c15ull;
  return static_cast<size_t>(mixed ^ (mixed >> 32));
}

}  // namespace

Allocation* AllocationTable::slot_of(Space space, uint64_t key) {
  if (!capacity_) return nullptr;
  for (size_t i = hash(space, key) & (capacity_ - 1);; i = (i + 1) & (capacity_ - 1)) {
    if (entries_[i].space == Space::empty) return nullptr;
    if (entries_[i].space == space && entries_[i].key == key) return &entries_[i];
  }
}

void AllocationTable::place(const Allocation& allocation) {
  size_t i = hash(allocation.space, allocation.key) & (capacity_ - 1);
  while (entries_[i].space != Space::empty) i = (i + 1) & (capacity_ - 1);
  entries_[i] = allocation;
  ++used_;
}

bool AllocationTable::grow() {
  size_t capacity = capacity_ ? capacity_ * 2 : 512;
  auto* fresh = static_cast<Allocation*>(map_pages(capacity * sizeof(Allocation)));  // zeroed: Space::empty
  if (!fresh) return false;
  Allocation* old = entries_;
  size_t old_capacity = capacity_;
  entries_ = fresh;
  capacity_ = capacity;
  used_ = 0;
  for (size_t i = 0; i < old_capacity; ++i)
    if (old[i].space != Space::empty) place(old[i]);
  if (old) unmap_pages(old, old_capacity * sizeof(Allocation));
  return true;
}

bool AllocationTable::insert(const Allocation& allocation) {
  Locked locked(lock_);
  if (Allocation* there = slot_of(allocation.space, allocation.key)) {
    *there = allocation;
    return true;
  }
  if (used_ * 4 >= capacity_ * 3 && !grow()) {
    if (used_ + 1 >= capacity_) return false;  // one empty slot must remain, or a search would not end
  }
  place(allocation);
  return true;
}

bool AllocationTable::find(Space space, uint64_t key, Allocation* out) {
  Locked locked(lock_);
  Allocation* entry = slot_of(space, key);
  if (entry) *out = *entry;
  return entry != nullptr;
}

bool AllocationTable::remove(Space space, uint64_t key, Allocation* out) {
  Locked locked(lock_);
  Allocation* entry = slot_of(space, key);
  if (!entry) return false;
  *out = *entry;
  erase(static_cast<size_t>(entry - entries_));
  return true;
}

// Backward-shift deletion: no tombstones, so a table of steady size never fills up.
void AllocationTable::erase(size_t index) {
  size_t mask = capacity_ - 1, hole = index;
  for (size_t i = (index + 1) & mask; entries_[i].space != Space::empty; i = (i + 1) & mask) {
    size_t home = hash(entries_[i].space, entries_[i].key) & mask;
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      entries_[hole] = entries_[i];
      hole = i;
    }
  }
  entries_[hole] = Allocation();
  --used_;
}

}  // namespace berth::shim
