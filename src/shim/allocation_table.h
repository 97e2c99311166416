// What this process holds on devices: each allocation an object with a kind of backing, found by the handle or pointer that
// the program has. A hash table in pages of our own; one lock, held for a few instructions, never over a driver call.
#pragma once
#include "abi/driver_types.h"
#include "shim/guest.h"

namespace berth::shim {

// Handles of different sorts may have equal values.
enum class Space : uint8_t { empty, pointer, physical, mapping, array, mipmap, pool, graph_exec, external, context, primary, stream, graph_node, split };

struct Allocation {
  uint64_t key = 0;
  uint64_t bytes = 0;    // on our account with the daemon
  uint64_t link = 0;     // mapping: the physical handle; graph_exec: 1 once launched; split: the SplitExec
  CUcontext context = nullptr;  // dies with it, if set
  uint32_t references = 0;      // physical: handles given out and not yet released, plus maps; context: 1 if it is no primary one
  Space space = Space::empty;
  wire::Kind kind = wire::Kind::linear;
  uint8_t device = 0;
  bool shares_page = false;  // a small one: the account has whole pages for all of them together
};

class AllocationTable {
 public:
  // Replaces what had the same space and key. False without memory: the allocation then stays on the account for ever.
  bool insert(const Allocation& allocation);
  // Takes the entry out. False if there is none.
  bool remove(Space space, uint64_t key, Allocation* out);
  bool find(Space space, uint64_t key, Allocation* out);
  // Calls change(Allocation&) on the entry under the lock; false if there is none.
  template <class Change>
  bool update(Space space, uint64_t key, Change change) {
    Locked locked(lock_);
    Allocation* entry = slot_of(space, key);
    if (!entry) return false;
    change(*entry);
    return true;
  }
  // Takes out one entry for which match(const Allocation&) holds. For whole contexts and ranges: call until false.
  template <class Match>
  bool remove_if(Match match, Allocation* out) {
    Locked locked(lock_);
    for (size_t i = 0; i < capacity_; ++i) {
      if (entries_[i].space == Space::empty || !match(entries_[i])) continue;
      *out = entries_[i];
      erase(i);
      return true;
    }
    return false;
  }
  // visit(Allocation&), which may change all but space and key.
  template <class Visit>
  void for_each(Visit visit) {
    Locked locked(lock_);
    for (size_t i = 0; i < capacity_; ++i)
      if (entries_[i].space != Space::empty) visit(entries_[i]);
  }

 private:
  Allocation* slot_of(Space space, uint64_t key);
  bool grow();
  void place(const Allocation& allocation);
  void erase(size_t index);

  GuestLock lock_;
  Allocation* entries_ = nullptr;
  size_t capacity_ = 0, used_ = 0;
};

}  // namespace berth::shim
