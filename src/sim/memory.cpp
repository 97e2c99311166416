#include "sim/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "sim/call.h"
#include "sim/context.h"
#include "sim/graph_memory.h"
#include "sim/pool.h"

using namespace berth::sim;

namespace berth::sim {

Range& add_range(Range range) {
  range.id = process().next_id++;
  return process().ranges[range.start] = std::move(range);
}

void drop_range(uint64_t start) {
  auto at = process().ranges.find(start);
  if (at == process().ranges.end()) return;
  Range range = std::move(at->second);
  process().ranges.erase(at);
  uint64_t view = range.view ? range.view : range.start,
           bytes = (range.bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  switch (range.kind) {
    case RangeKind::small:
      range.context->heap.give(range.start, range.bytes);
      break;
    case RangeKind::host:
      munmap(reinterpret_cast<void*>(range.start), range.bytes);
      break;
    case RangeKind::registered:
    case RangeKind::mapped:
      break;  // the mapping is cuMemUnmap's
    case RangeKind::pool:
      range.pool->forget(range.start);
      break;
    case RangeKind::graph:
      range.device->graph_memory->forget(range.start);
      break;
    case RangeKind::imported:
      unmap(view, range.physical->bytes);
      give_addresses(view, range.physical->bytes);
      break;
    case RangeKind::device:
    case RangeKind::managed:
      unmap(view, bytes);
      give_addresses(view, bytes);
      break;
  }
}

void drop_memory_of(Context& context) {
  std::vector<uint64_t> gone;
  for (const auto& [start, range] : process().ranges)
    if (range.context == &context && range.kind != RangeKind::mapped) gone.push_back(start);
  for (uint64_t start : gone) drop_range(start);
}

CUresult allocate_device(Context& context, uint64_t bytes, uint64_t* address) {
  Range range;
  range.bytes = bytes;
  range.context = &context;
  range.device = context.device;
  if (bytes <= kSmallLimit) {
    range.kind = RangeKind::small;
    range.start = context.heap.take(context.device->card, bytes, &range.physical, &range.offset);
    if (!range.start) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    range.physical = take_physical(context.device->card, bytes);
    if (!range.physical) return CUDA_ERROR_OUT_OF_MEMORY;
    range.start = take_addresses(range.physical->bytes);
    if (!range.start || !map_physical(*range.physical, 0, range.physical->bytes, range.start))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = range.start;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

}  // namespace berth::sim

namespace {

constexpr size_t kPitchAlignment = 512;

CUresult allocate(Call& call, CUdeviceptr* pointer, size_t bytes) {
  if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  if (CUresult bad = allocate_device(*call.context, bytes, &address)) return bad;
  *pointer = address;
  return CUDA_SUCCESS;
}

// Memory below 4 GiB, for callers whose pointers have 32 bits.
CUresult allocate_low(Call& call, CUdeviceptr_v1* pointer, uint64_t bytes) {
  if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  range.bytes = bytes;
  range.context = call.context;
  range.device = call.context->device;
  range.physical = take_physical(call.context->device->card, bytes);
  if (!range.physical) return CUDA_ERROR_OUT_OF_MEMORY;
  range.start = take_low_addresses(range.physical->bytes);
  if (!range.start || !map_physical(*range.physical, 0, range.physical->bytes, range.start))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = static_cast<CUdeviceptr_v1>(range.start);
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

bool pitch_for(size_t width, size_t height, unsigned element, size_t* pitch) {
  if (!width || !height || (element != 4 && element != 8 && element != 16) || width > SIZE_MAX - kPitchAlignment)
    return false;
  *pitch = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  return true;
}

// Waits until nothing runs that might use it; memory of pools and graphs is taken back by its owner.
CUresult release(Call& call, CUdeviceptr pointer) {
  if (!pointer) return CUDA_SUCCESS;
  auto freeable = [&]() -> Range* {
    auto at = process().ranges.find(pointer);
    if (at == process().ranges.end()) return nullptr;
    RangeKind kind = at->second.kind;
    bool mine = kind != RangeKind::host && kind != RangeKind::registered && kind != RangeKind::mapped;
    if (!mine || (kind == RangeKind::imported && at->second.flags)) return nullptr;
    for (const auto& each : at->second.device->freed_later)
      if (each.second == pointer) return nullptr;
    return &at->second;
  };
  const Range* range = freeable();
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  Context* context = range->context ? range->context : call.context;
  CUresult error = wait_for_context(call.lock, *context);
  if (error) return error;
  if (!freeable()) return CUDA_ERROR_INVALID_VALUE;
  bool pooled = range->kind == RangeKind::pool;
  drop_range(pointer);
  if (pooled) after_synchronisation(*context->device);
  return CUDA_SUCCESS;
}

unsigned clamped(uint64_t bytes) { return static_cast<unsigned>(std::min<uint64_t>(bytes, UINT32_MAX)); }

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SIM_CALL(kContext | kUnsafe);
  return allocate(call, pointer, bytes);
}

CUresult cuMemAlloc(CUdeviceptr_v1* pointer, unsigned bytes) {
  SIM_CALL(kContext | kUnsafe);
  return allocate_low(call, pointer, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  SIM_CALL(kContext | kUnsafe);
  if (!pointer || !pitch || !pitch_for(width, height, element, pitch)) return CUDA_ERROR_INVALID_VALUE;
  if (height > SIZE_MAX / *pitch) return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate(call, pointer, *pitch * height);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* pointer, unsigned* pitch, unsigned width, unsigned height, unsigned element) {
  SIM_CALL(kContext | kUnsafe);
  size_t wide = 0;
  if (!pointer || !pitch || !pitch_for(width, height, element, &wide)) return CUDA_ERROR_INVALID_VALUE;
  *pitch = clamped(wide);
  return allocate_low(call, pointer, wide * height);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SIM_CALL(kContext | kUnsafe);
  return release(call, pointer);
}

CUresult cuMemFree(CUdeviceptr_v1 pointer) {
  SIM_CALL(kContext | kUnsafe);
  return release(call, pointer);
}

CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
  SIM_CALL(kContext);
  if (available) *available = free_bytes(call.context->device->card);
  if (total) *total = state().card[call.context->device->card].memory;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned* available, unsigned* total) {
  SIM_CALL(kContext);
  if (available) *available = clamped(free_bytes(call.context->device->card));
  if (total) *total = clamped(state().card[call.context->device->card].memory);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  SIM_CALL(kContext);
  const Range* range = find_range(pointer);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range->start;
  if (bytes) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned* bytes, CUdeviceptr_v1 pointer) {
  SIM_CALL(kContext);
  const Range* range = find_range(pointer);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = static_cast<CUdeviceptr_v1>(range->start);
  if (bytes) *bytes = clamped(range->bytes);
  return CUDA_SUCCESS;
}

}  // extern "C"
