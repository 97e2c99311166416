// Page-locked host memory. Host and device know it by one address.
#include <sys/mman.h>

#include "sim/call.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace {

CUresult allocate_host(Call& call, void** pointer, size_t bytes, unsigned flags) {
  if (!pointer || !bytes || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
  void* where = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (where == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = reinterpret_cast<uint64_t>(where);
  range.bytes = bytes;
  range.kind = RangeKind::host;
  range.context = call.context;
  range.flags = flags;
  add_range(std::move(range));
  *pointer = where;
  return CUDA_SUCCESS;
}

CUresult register_host(Call& call, void* pointer, size_t bytes, unsigned flags) {
  auto start = reinterpret_cast<uint64_t>(pointer);
  if (!pointer || !bytes || start + bytes < start || flags & ~0xfu) return CUDA_ERROR_INVALID_VALUE;
  auto next = process().ranges.lower_bound(start);
  if (find_range(start) || (next != process().ranges.end() && next->first < start + bytes))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Range range;
  range.start = start;
  range.bytes = bytes;
  range.kind = RangeKind::registered;
  range.context = call.context;
  range.flags = flags;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

Range* host_range(const void* pointer) {
  Range* range = find_range(reinterpret_cast<uint64_t>(pointer));
  return range && (range->kind == RangeKind::host || range->kind == RangeKind::registered) ? range : nullptr;
}

}  // namespace

extern "C" {

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  SIM_CALL(kContext | kUnsafe);
  return allocate_host(call, pointer, bytes, flags);
}

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  SIM_CALL(kContext | kUnsafe);
  return allocate_host(call, pointer, bytes, 0);
}

CUresult cuMemAllocHost(void** pointer, unsigned bytes) {
  SIM_CALL(kContext | kUnsafe);
  return allocate_host(call, pointer, bytes, 0);
}

CUresult cuMemFreeHost(void* pointer) {
  SIM_CALL(kContext | kUnsafe);
  if (!pointer) return CUDA_SUCCESS;
  const Range* range = host_range(pointer);
  if (!range || range->kind != RangeKind::host || range->start != reinterpret_cast<uint64_t>(pointer))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = wait_for_context(call.lock, *range->context);
  drop_range(reinterpret_cast<uint64_t>(pointer));
  return error;
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  SIM_CALL(kContext);
  return register_host(call, pointer, bytes, flags);
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  SIM_CALL(kContext);
  return register_host(call, pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) {
  SIM_CALL(kContext);
  const Range* range = host_range(pointer);
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  if (!range || range->kind != RangeKind::registered || range->start != reinterpret_cast<uint64_t>(pointer))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  CUresult error = wait_for_context(call.lock, *range->context);
  drop_range(reinterpret_cast<uint64_t>(pointer));
  return error;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer, unsigned flags) {
  SIM_CALL(kContext);
  if (!device || flags || !host_range(pointer)) return CUDA_ERROR_INVALID_VALUE;
  *device = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1* device, void* pointer, unsigned flags) {
  SIM_CALL(kContext);
  if (!device || flags || !host_range(pointer) || reinterpret_cast<uint64_t>(pointer) > UINT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  *device = static_cast<CUdeviceptr_v1>(reinterpret_cast<uint64_t>(pointer));
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  SIM_CALL(kContext);
  const Range* range = host_range(pointer);
  if (!flags || !range || range->kind != RangeKind::host) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags | 2;  // device-mapped, always
  return CUDA_SUCCESS;
}

}  // extern "C"
