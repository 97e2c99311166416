// What a submission is, as far as its arguments tell: the stream it goes to, and a key under which its length can be learned.
// The same kernel with the same grid, the same graph, a copy of the same size: the same key.
#pragma once
#include "abi/driver_types.h"
#include "abi/generated/driver_rows.h"

namespace berth::shim {

struct Work {
  CUstream stream = nullptr;
  uint64_t key = 0;
};

namespace work_parts {

inline void mix(Work& work, uint64_t value) {
  work.key = (work.key ^ value) * 0x9e3779b97f4a7c15ull;
  work.key ^= work.key >> 29;
}

// Sizes of copies, to the next power of two: lengths within a class differ by less than what a window allows.
inline void mix_size(Work& work, uint64_t bytes) { mix(work, bytes ? 64u - static_cast<unsigned>(__builtin_clzll(bytes)) : 0); }

template <class Copy>
void mix_extent(Work& work, const Copy* copy, uint64_t depth) {
  mix_size(work, copy->WidthInBytes * copy->Height * depth);
}

inline void add(Work& work, CUstream stream) { work.stream = stream; }
inline void add(Work& work, CUfunction function) { mix(work, reinterpret_cast<uint64_t>(function)); }
inline void add(Work& work, CUgraphExec graph) { mix(work, reinterpret_cast<uint64_t>(graph)); }
inline void add(Work& work, unsigned dimension) { mix(work, dimension); }
inline void add(Work& work, size_t bytes) { mix_size(work, bytes); }
inline void add(Work& work, const CUlaunchConfig* config) {
  if (!config) return;
  work.stream = config->hStream;
  for (unsigned part : {config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ})
    mix(work, part);
}
inline void add(Work& work, const CUDA_MEMCPY2D* copy) { if (copy) mix_extent(work, copy, 1); }
inline void add(Work& work, const CUDA_MEMCPY3D* copy) { if (copy) mix_extent(work, copy, copy->Depth); }
inline void add(Work& work, const CUDA_MEMCPY3D_PEER* copy) { if (copy) mix_extent(work, copy, copy->Depth); }
template <class Other>
void add(Work&, Other) {}  // addresses, values to set, flags

}  // namespace work_parts

template <class... Arguments>
Work work_of(abi::driver::Row row, Arguments... arguments) {
  Work work;
  work_parts::mix(work, static_cast<uint64_t>(row) + 1);
  (work_parts::add(work, arguments), ...);
  if (work.key == 0) work.key = 1;
  return work;
}

}  // namespace berth::shim
