#include "shim/gate.h"

#include <linux/futex.h>
#include <linux/time_types.h>
#include <sys/syscall.h>

namespace berth::shim {

void wait_at_gate() {
  // The helper takes the gate away when the daemon is gone, so look again every 100 ms.
  for (;;) {
    const std::atomic<uint32_t>* gate = __atomic_load_n(&berth_fork_page->gate, __ATOMIC_ACQUIRE);
    uint32_t bits = gate ? gate->load(std::memory_order_acquire) : 0;
    if (!(bits & wire::kGateShut)) return;
    __kernel_timespec patience{0, 100'000'000};
    sys(SYS_futex, reinterpret_cast<long>(gate), FUTEX_WAIT, bits, reinterpret_cast<long>(&patience));
  }
}

}  // namespace berth::shim
