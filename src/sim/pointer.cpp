// What a pointer is.
#include <cstring>

#include "sim/call.h"

using namespace berth::sim;

namespace {

enum MemoryType : unsigned { kHostMemory = 1, kDeviceMemory = 2 };

template <class T>
CUresult give(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

bool is_host(const Range& range) {
  return range.kind == RangeKind::host || range.kind == RangeKind::registered || !range.device;
}

CUresult attribute_of(const Range& range, CUpointer_attribute attribute, uint64_t pointer, void* data) {
  bool exportable = range.kind == RangeKind::device || range.kind == RangeKind::small;
  switch (attribute) {
    case 1:
      return give(data, range.kind == RangeKind::mapped ? nullptr : range.context);
    case 2:
      return give(data, is_host(range) ? kHostMemory : kDeviceMemory);
    case 3:
      return give(data, pointer);
    case 4:
      if (!is_host(range) && range.kind != RangeKind::managed) return CUDA_ERROR_INVALID_VALUE;
      return give(data, pointer);
    case 6:
      return give(data, static_cast<int>(range.sync_operations));
    case 7:
      return give(data, range.id);
    case 8:
      return give(data, static_cast<unsigned>(range.kind == RangeKind::managed));
    case 9:
      return give(data, range.device ? range.device->ordinal : range.context ? range.context->device->ordinal : 0);
    case 10:
      return give(data, static_cast<int>(exportable));
    case 11:
      return give(data, range.start);
    case 12:
      return give(data, range.bytes);
    case 13:
      return give(data, 1);
    case 14:
      return give(data, static_cast<uint64_t>(range.kind == RangeKind::mapped));
    case 15:
      return give(data, 0);
    case 16:
      return give(data, range.access);
    case 17:
      return give(data, reinterpret_cast<CUmemoryPool>(range.pool));
    case 18:
      return give(data, range.bytes);
    case 19:
      return give(data, range.start);
    case 20:
      return give(data, range.id);
    case 21:
      return give(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// For pointers that the driver does not know, the list form gives zeros where the single form fails.
size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case 2:
    case 6:
    case 8:
    case 9:
    case 10:
    case 13:
    case 15:
    case 16:
    case 21:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIM_CALL(kDriver);
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(pointer);
  return range ? attribute_of(*range, attribute, pointer, data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  SIM_CALL(kDriver);
  if (!count || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (!data[i] || attributes[i] < 1 || attributes[i] > 21 || attributes[i] == 5) return CUDA_ERROR_INVALID_VALUE;
    if (range && attribute_of(*range, attributes[i], pointer, data[i]) == CUDA_SUCCESS) continue;
    std::memset(data[i], 0, size_of(attributes[i]));
    if (attributes[i] == 9) give(data[i], -2);  // CU_DEVICE_INVALID
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIM_CALL(kDriver);
  Range* range = find_range(pointer);
  if (!value || attribute != 6 || !range) return CUDA_ERROR_INVALID_VALUE;
  int on = 0;
  std::memcpy(&on, value, sizeof on);
  range->sync_operations = on != 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
