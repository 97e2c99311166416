// Freeing by pointer, whichever call does it.
#pragma once
#include "shim/call.h"

namespace berth::shim {

// The entry is taken out before the driver's call: afterwards another thread may be given the same address.
template <class Real>
CUresult free_pointer(FreeCall& call, uint64_t pointer, Real real) {
  Allocation allocation;
  bool ours = call.client().table.remove(Space::pointer, pointer, &allocation);
  CUresult result = real();
  if (!ours) return result;
  if (result == CUDA_SUCCESS) call.client().release(allocation);
  else call.client().table.insert(allocation);
  return result;
}

}  // namespace berth::shim
