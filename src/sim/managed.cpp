#include "sim/managed.h"

#include <algorithm>
#include <cstring>

#include "sim/call.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace berth::sim {

void move_managed(Range& range, Device& device, bool to_device) {
  if (range.kind != RangeKind::managed) return;
  if (!to_device)
    range.physical = nullptr;
  else if (!range.physical)
    range.physical = take_physical(device.card, range.bytes, PageKind::managed);
}

bool device_touch(Device& device, uint64_t address, uint64_t bytes) {
  if (!device_may_use(address, bytes)) return false;
  for (uint64_t end = address + bytes; address < end;) {
    Range* range = find_range(address);
    move_managed(*range, device, true);
    address = range->start + range->bytes;
  }
  return true;
}

bool kernel_touch(Context& context, uint64_t address, uint64_t bytes) {
  if (!device_touch(*context.device, address, bytes)) return false;
  for (uint64_t at = address, end = address + bytes; at < end;) {
    const Range& range = *find_range(at);
    bool plain = range.kind == RangeKind::device || range.kind == RangeKind::small;
    if (plain && range.device != context.device &&
        std::find(context.peers.begin(), context.peers.end(), range.context) == context.peers.end())
      return false;
    at = range.start + range.bytes;
  }
  return true;
}

}  // namespace berth::sim

namespace {

// All of it managed.
bool managed(uint64_t address, uint64_t bytes) {
  const Range* range = find_range(address);
  return range && range->kind == RangeKind::managed && address + bytes <= range->start + range->bytes;
}

CUresult prefetch(Call& call, CUdeviceptr pointer, size_t bytes, CUmemLocation location, Stream* stream) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!bytes || !managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  bool to_device = location.type == 1;
  if (to_device && !device_of(location.id)) return CUDA_ERROR_INVALID_DEVICE;
  (void)call;
  return submit_work(*stream, ManagedWork{pointer, to_device});
}

CUmemLocation location_of(CUdevice device) {
  if (device == -1) return {2, 0};  // CU_DEVICE_CPU
  return {1, device};
}

CUresult advise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice) {
  if (!bytes || advice < 1 || advice > 6 || !managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  SIM_CALL(kContext | kUnsafe);
  if (!pointer || !bytes || flags < 1 || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (pages < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = take_addresses(pages);
  if (!range.start || !map_private(range.start, pages)) return CUDA_ERROR_OUT_OF_MEMORY;
  range.bytes = bytes;
  range.kind = RangeKind::managed;
  range.context = call.context;
  range.device = call.context->device;
  *pointer = range.start;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

SIM_BOTH_FLAVOURS(cuMemPrefetchAsync, _ptsz, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream), {
  SIM_CALL(kContext);
  return prefetch(call, pointer, bytes, location_of(device), stream_of(call, stream, flavour));
})

SIM_BOTH_FLAVOURS(cuMemPrefetchAsync_v2, _ptsz,
                  (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream), {
                    SIM_CALL(kContext);
                    if (flags) return CUDA_ERROR_INVALID_VALUE;
                    return prefetch(call, pointer, bytes, location, stream_of(call, stream, flavour));
                  })

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice) {
  SIM_CALL(kContext);
  return advise(pointer, bytes, advice);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation) {
  SIM_CALL(kContext);
  return advise(pointer, bytes, advice);
}

// Of the attributes, only the last prefetch is kept: on the device or not.
CUresult cuMemRangeGetAttribute(void* data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t bytes) {
  SIM_CALL(kContext);
  if (!data || !data_bytes || attribute < 1 || attribute > 8 || !bytes || !managed(pointer, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const Range& range = *find_range(pointer);
  std::memset(data, 0, data_bytes);
  if (attribute == 4 && data_bytes >= 4) {
    int device = range.physical ? range.device->ordinal : -2;  // CU_DEVICE_INVALID
    std::memcpy(data, &device, sizeof device);
  }
  return CUDA_SUCCESS;
}

SIM_BOTH_FLAVOURS(cuStreamAttachMemAsync, _ptsz, (CUstream stream, CUdeviceptr pointer, size_t, unsigned flags), {
  SIM_CALL(kContext);
  Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!find_range(pointer) || (flags != 1 && flags != 2 && flags != 4)) return CUDA_ERROR_INVALID_VALUE;
  return submit_work(*target, EmptyWork{});
})

}  // extern "C"
