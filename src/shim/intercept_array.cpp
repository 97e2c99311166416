// Arrays and mipmapped arrays. Their layout is the driver's secret, so an upper bound is reserved and the size that the
// driver then tells (where it does) is what stays on the account.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"

namespace berth::shim::intercept {
namespace {

uint64_t element_bytes(CUarray_format format) {
  switch (format) {
    case 0x01: case 0x08: return 1;                          // 8-bit integers
    case 0x02: case 0x09: case 0x10: return 2;               // 16-bit integers, half
    case 0x03: case 0x0a: case 0x20: return 4;               // 32-bit integers, float
    default: return 4;  // normalised, block-compressed and planar formats: none is wider a channel
  }
}

// Rows padded to 512 bytes, each dimension at least one; whole pages are the caller's affair.
uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, CUarray_format format, unsigned channels) {
  uint64_t row = round_up((width ? width : 1) * element_bytes(format) * (channels ? channels : 1), 512);
  uint64_t rows = round_up(height ? height : 1, 8), bytes;
  if (__builtin_mul_overflow(row, rows, &bytes) || __builtin_mul_overflow(bytes, depth ? depth : 1, &bytes)) return ~0ull;
  return bytes;
}

template <class Handle, class Real>
CUresult allocate(AllocCall& call, Space space, Handle* handle, uint64_t bytes, Real real) {
  Allocation what;
  uint32_t device;
  if (!handle || !current_context(call, &what.context, &device)) return real();
  what.space = space;
  what.kind = wire::Kind::array;
  what.device = static_cast<uint8_t>(device);
  what.bytes = page_footprint(bytes);
  return call.allocate(what, real, [&] { return reinterpret_cast<uint64_t>(*handle); });
}

template <class Real>
CUresult destroy(FreeCall& call, Space space, uint64_t handle, Real real) {
  Allocation allocation;
  bool ours = call.client().table.remove(space, handle, &allocation);
  CUresult result = real();
  if (!ours) return result;
  if (result == CUDA_SUCCESS) call.client().release(allocation);
  else call.client().table.insert(allocation);
  return result;
}

template <class Descriptor>
uint64_t bound_2d(const Descriptor* d) { return d ? array_bytes(d->Width, d->Height, 1, d->Format, d->NumChannels) : 0; }
template <class Descriptor>
uint64_t bound_3d(const Descriptor* d) { return d ? array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels) : 0; }

}  // namespace

CUresult cuArrayCreate(AllocCall& call, decltype(&::cuArrayCreate) real, CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  return allocate(call, Space::array, d ? array : nullptr, bound_2d(d), [&] { return real(array, d); });
}
CUresult cuArrayCreate_v2(AllocCall& call, decltype(&::cuArrayCreate_v2) real, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d) {
  return allocate(call, Space::array, d ? array : nullptr, bound_2d(d), [&] { return real(array, d); });
}
CUresult cuArray3DCreate(AllocCall& call, decltype(&::cuArray3DCreate) real, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  return allocate(call, Space::array, d ? array : nullptr, bound_3d(d), [&] { return real(array, d); });
}
CUresult cuArray3DCreate_v2(AllocCall& call, decltype(&::cuArray3DCreate_v2) real, CUarray* array,
                            const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return allocate(call, Space::array, d ? array : nullptr, bound_3d(d), [&] { return real(array, d); });
}

CUresult cuMipmappedArrayCreate(AllocCall& call, decltype(&::cuMipmappedArrayCreate) real, CUmipmappedArray* array,
                                const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned levels) {
  uint64_t bytes = 0;
  for (unsigned level = 0; d && level < levels && level < 32; ++level) {
    uint64_t one = array_bytes(d->Width >> level, d->Height >> level, d->Depth >> level, d->Format, d->NumChannels);
    if (__builtin_add_overflow(bytes, one, &bytes)) bytes = ~0ull;
  }
  return allocate(call, Space::mipmap, d ? array : nullptr, bytes, [&] { return real(array, d, levels); });
}

CUresult cuArrayDestroy(FreeCall& call, decltype(&::cuArrayDestroy) real, CUarray array) {
  return destroy(call, Space::array, reinterpret_cast<uint64_t>(array), [&] { return real(array); });
}
CUresult cuMipmappedArrayDestroy(FreeCall& call, decltype(&::cuMipmappedArrayDestroy) real, CUmipmappedArray array) {
  return destroy(call, Space::mipmap, reinterpret_cast<uint64_t>(array), [&] { return real(array); });
}

}  // namespace berth::shim::intercept
