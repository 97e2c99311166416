// Kernel launches as plain work.
#pragma once
#include "sim/work.h"

namespace berth::sim {

struct Launch {
  CUfunction function;
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};
// Copies the arguments: they may be gone when the caller returns.
CUresult make_kernel_work(Context& context, const Launch& launch, KernelWork* work);

}  // namespace berth::sim
