// The gate word of this process, in the page that the daemon writes (wire/daemon_page.h: kGate...). Assembly gates look at the
// same word; 0, or no word, lets every submission pass. While it is shut callers wait here; what else it asks for is done by
// SubmitCall.
#pragma once
#include "shim/guest.h"

namespace berth::shim {

inline uint32_t gate_bits() {
  const std::atomic<uint32_t>* gate = __atomic_load_n(&berth_fork_page->gate, __ATOMIC_ACQUIRE);
  return gate ? gate->load(std::memory_order_acquire) : 0;
}

// Waits while the gate is shut; wakes by futex when the daemon opens it.
void wait_at_gate();

inline void pass_gate() {
  if (gate_bits() & wire::kGateShut) [[unlikely]] wait_at_gate();
}

}  // namespace berth::shim
