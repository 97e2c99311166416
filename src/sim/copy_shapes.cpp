#include <algorithm>

#include "sim/array.h"
#include "sim/call.h"
#include "sim/copy.h"

namespace berth::sim {
namespace {

enum Type { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z, pitch, height;
};

struct Extent {
  size_t width, height, depth;
};

uint64_t span(const Side& side, const Extent& extent) {
  return side.slice * (extent.depth - 1) + side.pitch * (extent.height - 1) + extent.width;
}

bool on_device(uint64_t address) {
  const Range* range = find_range(address);
  return range && range->device != nullptr;
}

bool resolve_array(const End& end, const Extent& extent, Side* side) {
  auto array = array_of(end.array);
  if (!array || end.x + extent.width > array->row_bytes || end.y + extent.height > array->rows() ||
      end.z + extent.depth > array->layers())
    return false;
  side->pitch = array->row_bytes;
  side->slice = array->row_bytes * array->rows();
  side->address = array->address + end.z * side->slice + end.y * side->pitch + end.x;
  side->device = true;
  return true;
}

bool resolve(const End& end, const Extent& extent, Side* side) {
  if (end.type == kArray) return resolve_array(end, extent, side);
  if (end.type < kHost || end.type > kUnified) return false;
  size_t pitch = end.pitch ? end.pitch : extent.width;
  if (pitch < extent.width && extent.height > 1) return false;
  side->pitch = pitch;
  side->slice = pitch * std::max(end.height ? end.height : extent.height, size_t{1});
  uint64_t base = end.type == kHost ? reinterpret_cast<uint64_t>(end.host) : end.device;
  if (!base) return false;
  side->address = base + end.z * side->slice + end.y * pitch + end.x;
  side->device = end.type == kDevice || (end.type == kUnified && on_device(base));
  return !side->device || device_may_use(side->address, span(*side, extent));
}

template <class Description>
End source(const Description& d, size_t z, size_t height) {
  return {d.srcMemoryType, d.srcHost, d.srcDevice, d.srcArray, d.srcXInBytes, d.srcY, z, d.srcPitch, height};
}
template <class Description>
End target(const Description& d, size_t z, size_t height) {
  return {d.dstMemoryType, d.dstHost, d.dstDevice, d.dstArray, d.dstXInBytes, d.dstY, z, d.dstPitch, height};
}

CUresult make(const End& from, const End& to, const Extent& extent, CopyWork* work) {
  *work = {{}, {}, extent.width, extent.height, extent.depth, nullptr};
  if (!extent.width || !extent.height || !extent.depth) return CUDA_SUCCESS;
  return resolve(from, extent, &work->from) && resolve(to, extent, &work->to) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult make_copy(const CUDA_MEMCPY2D& d, CopyWork* work) {
  return make(source(d, 0, 0), target(d, 0, 0), {d.WidthInBytes, d.Height, 1}, work);
}

CUresult make_copy(const CUDA_MEMCPY3D& d, CopyWork* work) {
  if (d.srcLOD || d.dstLOD) return CUDA_ERROR_INVALID_VALUE;
  return make(source(d, d.srcZ, d.srcHeight), target(d, d.dstZ, d.dstHeight), {d.WidthInBytes, d.Height, d.Depth},
              work);
}

CUresult make_copy(const CUDA_MEMCPY3D_PEER& d, CopyWork* work) {
  if (d.srcLOD || d.dstLOD) return CUDA_ERROR_INVALID_VALUE;
  return make(source(d, d.srcZ, d.srcHeight), target(d, d.dstZ, d.dstHeight), {d.WidthInBytes, d.Height, d.Depth},
              work);
}

CUresult make_linear_copy(uint64_t to, Place to_place, uint64_t from, Place from_place, uint64_t bytes,
                          CopyWork* work) {
  auto end = [](uint64_t address, Place place) {
    CUmemorytype type = place == Place::host ? kHost : place == Place::device ? kDevice : kUnified;
    return End{type, reinterpret_cast<const void*>(address), address, nullptr, 0, 0, 0, 0, 0};
  };
  return make(end(from, from_place), end(to, to_place), {bytes, 1, 1}, work);
}

}  // namespace berth::sim
