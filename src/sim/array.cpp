#include "sim/array.h"

#include <algorithm>

#include "sim/call.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

struct Mipmap {
  Context* context = nullptr;
  uint64_t address = 0;
  std::vector<std::shared_ptr<Array>> levels;
};

Registry<Array>& arrays() {
  static auto* const registry = new Registry<Array>;
  return *registry;
}
Registry<Mipmap>& mipmaps() {
  static auto* const registry = new Registry<Mipmap>;
  return *registry;
}

constexpr unsigned kSparse = 0x40, kDeferred = 0x80;

size_t element_bytes(CUarray_format format) {
  switch (format) {
    case 0x01:
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4;
    default:
      return 0;
  }
}

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (!d.Width || !element_bytes(d.Format) || (d.NumChannels != 1 && d.NumChannels != 2 && d.NumChannels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  if (d.Width > 131072 || d.Height > 131072 || d.Depth > 16384) return CUDA_ERROR_INVALID_VALUE;
  return d.Flags & (kSparse | kDeferred) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

std::shared_ptr<Array> describe(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  auto array = std::make_shared<Array>();
  array->context = &context;
  array->description = d;
  array->row_bytes = d.Width * element_bytes(d.Format) * d.NumChannels;
  return array;
}

}  // namespace

std::shared_ptr<Array> array_of(CUarray handle) { return arrays().find(handle); }

}  // namespace berth::sim

namespace {

CUresult create(Call& call, CUarray* result, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check(description)) return bad;
  auto array = describe(*call.context, description);
  if (CUresult bad = allocate_device(*call.context, array->bytes(), &array->address)) return bad;
  *result = arrays().add<CUarray>(array);
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR widened(const CUDA_ARRAY_DESCRIPTOR& d) {
  return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
}
CUDA_ARRAY3D_DESCRIPTOR widened(const CUDA_ARRAY_DESCRIPTOR_v1& d) {
  return {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
}
CUDA_ARRAY3D_DESCRIPTOR widened(const CUDA_ARRAY3D_DESCRIPTOR_v1& d) {
  return {d.Width, d.Height, d.Depth, d.Format, d.NumChannels, d.Flags};
}

unsigned narrow(size_t value) { return static_cast<unsigned>(value); }

}  // namespace

extern "C" {

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* description) {
  SIM_CALL(kContext | kUnsafe);
  return description ? create(call, array, widened(*description)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* description) {
  SIM_CALL(kContext | kUnsafe);
  return description ? create(call, array, widened(*description)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  SIM_CALL(kContext | kUnsafe);
  return description ? create(call, array, *description) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* description) {
  SIM_CALL(kContext | kUnsafe);
  return description ? create(call, array, widened(*description)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayDestroy(CUarray handle) {
  SIM_CALL(kContext | kUnsafe);
  auto array = array_of(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (!array->own_memory) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = wait_for_context(call.lock, *array->context);
  if (array->context->alive) drop_range(array->address);  // else the context has taken it along
  arrays().remove(handle);
  return error;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* description, CUarray handle) {
  SIM_CALL(kContext);
  auto array = array_of(handle);
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const auto& d = array->description;
  *description = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* description, CUarray handle) {
  SIM_CALL(kContext);
  auto array = array_of(handle);
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const auto& d = array->description;
  *description = {narrow(d.Width), narrow(d.Height), d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* description, CUarray handle) {
  SIM_CALL(kContext);
  auto array = array_of(handle);
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *description = array->description;
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* description, CUarray handle) {
  SIM_CALL(kContext);
  auto array = array_of(handle);
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const auto& d = array->description;
  *description = {narrow(d.Width), narrow(d.Height), narrow(d.Depth), d.Format, d.NumChannels, d.Flags};
  return CUDA_SUCCESS;
}

// Recorded: an array that is not of the deferred kind has none to tell.
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray handle, CUdevice) {
  SIM_CALL(kContext);
  return array_of(handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray handle, CUdevice) {
  SIM_CALL(kContext);
  return mipmaps().find(handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* result, const CUDA_ARRAY3D_DESCRIPTOR* description, unsigned levels) {
  SIM_CALL(kContext | kUnsafe);
  if (!result || !description || !levels) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check(*description)) return bad;
  auto mipmap = std::make_shared<Mipmap>();
  mipmap->context = call.context;
  CUDA_ARRAY3D_DESCRIPTOR level = *description;
  uint64_t bytes = 0;
  for (unsigned i = 0; i < levels; ++i) {
    auto array = describe(*call.context, level);
    array->own_memory = false;
    array->address = bytes;
    bytes += array->bytes();
    mipmap->levels.push_back(array);
    if (level.Width <= 1 && level.Height <= 1 && level.Depth <= 1) break;
    level.Width = std::max<size_t>(level.Width / 2, 1);
    if (level.Height) level.Height = std::max<size_t>(level.Height / 2, 1);
    if (level.Depth) level.Depth = std::max<size_t>(level.Depth / 2, 1);
  }
  if (CUresult bad = allocate_device(*call.context, bytes, &mipmap->address)) return bad;
  for (const auto& array : mipmap->levels) {
    array->address += mipmap->address;
    arrays().add<CUarray>(array);
  }
  *result = mipmaps().add<CUmipmappedArray>(mipmap);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  SIM_CALL(kContext | kUnsafe);
  auto mipmap = mipmaps().find(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = wait_for_context(call.lock, *mipmap->context);
  for (const auto& level : mipmap->levels) arrays().remove(level.get());
  if (mipmap->context->alive) drop_range(mipmap->address);
  mipmaps().remove(handle);
  return error;
}

CUresult cuMipmappedArrayGetLevel(CUarray* result, CUmipmappedArray handle, unsigned level) {
  SIM_CALL(kContext);
  auto mipmap = mipmaps().find(handle);
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *result = reinterpret_cast<CUarray>(mipmap->levels[level].get());
  return CUDA_SUCCESS;
}

}  // extern "C"
