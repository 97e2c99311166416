// cuMemAlloc and its relatives, managed memory, and the frees of plain pointers.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"
#include "shim/free_pointer.h"
#include "shim/pools.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

Allocation pointer_allocation(wire::Kind kind, uint32_t device, CUcontext context, uint64_t bytes) {
  Allocation what;
  what.space = Space::pointer;
  what.kind = kind;
  what.device = static_cast<uint8_t>(device);
  what.context = context;
  what.bytes = bytes;
  what.shares_page = kind == wire::Kind::linear && bytes <= kSharedPageBytes;
  return what;
}

// Arguments that the driver refuses anyway, and threads without a context, get the driver's own answer.
template <class Pointer, class Real>
CUresult allocate(AllocCall& call, wire::Kind kind, Pointer* pointer, uint64_t bytes, Real real) {
  CUcontext context;
  uint32_t device;
  if (!pointer || bytes == 0 || !current_context(call, &context, &device)) return real();
  return call.allocate(pointer_allocation(kind, device, context, bytes), real, [&] { return uint64_t{*pointer}; });
}

}  // namespace

CUresult cuMemAlloc(AllocCall& call, decltype(&::cuMemAlloc) real, CUdeviceptr_v1* pointer, unsigned bytes) {
  return allocate(call, wire::Kind::linear, pointer, linear_footprint(bytes), [&] { return real(pointer, bytes); });
}

CUresult cuMemAlloc_v2(AllocCall& call, decltype(&::cuMemAlloc_v2) real, CUdeviceptr* pointer, size_t bytes) {
  return allocate(call, wire::Kind::linear, pointer, linear_footprint(bytes), [&] { return real(pointer, bytes); });
}

CUresult cuMemAllocPitch(AllocCall& call, decltype(&::cuMemAllocPitch) real, CUdeviceptr_v1* pointer, unsigned* pitch,
                         unsigned width, unsigned height, unsigned element) {
  uint64_t bytes = linear_footprint(round_up(width, 512) * height);
  return allocate(call, wire::Kind::linear, pitch ? pointer : nullptr, bytes,
                  [&] { return real(pointer, pitch, width, height, element); });
}

CUresult cuMemAllocPitch_v2(AllocCall& call, decltype(&::cuMemAllocPitch_v2) real, CUdeviceptr* pointer, size_t* pitch,
                            size_t width, size_t height, unsigned element) {
  uint64_t rows = round_up(width, 512), bytes = 0;
  if (__builtin_mul_overflow(rows, height, &bytes)) bytes = ~0ull;
  return allocate(call, wire::Kind::linear, pitch ? pointer : nullptr, linear_footprint(bytes),
                  [&] { return real(pointer, pitch, width, height, element); });
}

CUresult cuMemAllocManaged(AllocCall& call, decltype(&::cuMemAllocManaged) real, CUdeviceptr* pointer, size_t bytes,
                           unsigned flags) {
  return allocate(call, wire::Kind::managed, pointer, page_footprint(bytes), [&] { return real(pointer, bytes, flags); });
}

CUresult cuMemFree(FreeCall& call, decltype(&::cuMemFree) real, CUdeviceptr_v1 pointer) {
  return free_pointer(call, pointer, [&] { return real(pointer); });
}

CUresult cuMemFree_v2(FreeCall& call, decltype(&::cuMemFree_v2) real, CUdeviceptr pointer) {
  CUresult result = free_pointer(call, pointer, [&] { return real(pointer); });
  if (result == CUDA_SUCCESS) settle_all_pools(call.client());  // stream-ordered memory may be freed so too
  return result;
}

CUresult cuMemGetInfo_v2(QueryCall& call, decltype(&::cuMemGetInfo_v2) real, size_t* free, size_t* total) {
  size_t real_free, real_total;
  CUresult result = real(&real_free, &real_total);
  if (result != CUDA_SUCCESS) return result;
  settle_all_pools(call.client());
  uint32_t device;
  const wire::PageDevice* numbers = current_device(&device) ? call.client().device(device) : nullptr;
  if (numbers) {
    call.client().settle_releases(device);
    uint64_t ours = numbers->free_bytes.load(std::memory_order_relaxed);
    if (numbers->quota_bytes != wire::kNoQuota) real_total = numbers->total_bytes;
    if (ours < real_free) real_free = ours;
  }
  if (free) *free = real_free;
  if (total) *total = real_total;
  return result;
}

CUresult cuMemGetInfo(QueryCall& call, decltype(&::cuMemGetInfo) real, unsigned* free, unsigned* total) {
  unsigned real_free, real_total;
  CUresult result = real(&real_free, &real_total);
  if (result != CUDA_SUCCESS) return result;
  uint32_t device;
  if (const wire::PageDevice* numbers = current_device(&device) ? call.client().device(device) : nullptr) {
    call.client().settle_releases(device);
    uint64_t ours = numbers->free_bytes.load(std::memory_order_relaxed);
    if (numbers->total_bytes < real_total) real_total = static_cast<unsigned>(numbers->total_bytes);
    if (ours < real_free) real_free = static_cast<unsigned>(ours);
  }
  if (free) *free = real_free;
  if (total) *total = real_total;
  return result;
}

CUresult cuDeviceTotalMem_v2(QueryCall& call, decltype(&::cuDeviceTotalMem_v2) real, size_t* bytes, CUdevice device) {
  CUresult result = real(bytes, device);
  if (result != CUDA_SUCCESS || device < 0) return result;
  const wire::PageDevice* numbers = call.client().device(account_of(device));
  if (numbers && numbers->quota_bytes != wire::kNoQuota) *bytes = numbers->total_bytes;
  return result;
}

CUresult cuDeviceTotalMem(QueryCall& call, decltype(&::cuDeviceTotalMem) real, unsigned* bytes, CUdevice device) {
  CUresult result = real(bytes, device);
  if (result != CUDA_SUCCESS || device < 0) return result;
  const wire::PageDevice* numbers = call.client().device(account_of(device));
  if (numbers && numbers->total_bytes < *bytes) *bytes = static_cast<unsigned>(numbers->total_bytes);
  return result;
}

}  // namespace berth::shim::intercept
