// The gates of a submission: may it go now (time), is its memory there (memory). Open in this version: nothing shuts them yet
// but tests; scheduling and swapping will. The word is in the page that the daemon writes; assembly gates read the same one.
#pragma once
#include "shim/guest.h"

namespace berth::shim {

// Waits while the gate is shut; wakes by futex when the daemon opens it.
void wait_at_gate();

inline void pass_gate() {
  const std::atomic<uint32_t>* gate = __atomic_load_n(&berth_fork_page->gate, __ATOMIC_ACQUIRE);
  if (gate && gate->load(std::memory_order_acquire) != 0) [[unlikely]] wait_at_gate();
}

}  // namespace berth::shim
