// The compute mode as programs are shown it: the daemon's or the card's own, whichever lets fewer in (policy/compute_mode.h).
#pragma once
#include "wire/daemon_page.h"

namespace berth::shim {

// `own` is what the card says, as CUcomputemode or nvmlComputeMode_t: 0 default, 1 and 3 exclusive, 2 prohibited.
inline int stricter_mode(int own, const wire::PageDevice& device) {
  auto strictness = [](int mode) { return mode == 0 ? 0 : mode == 2 ? 2 : 1; };
  int ours = static_cast<int>(device.compute_mode.load(std::memory_order_relaxed));
  return strictness(ours) > strictness(own) ? ours : own;
}

}  // namespace berth::shim
