// Memory imported by descriptor and seen through mapped buffers.
#include "sim/call.h"
#include "sim/ipc.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace {

constexpr int kOpaqueDescriptor = 1;  // CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD

struct External {
  PhysicalRef physical;
  uint64_t bytes;
};

Registry<External>& externals() {
  static auto* const registry = new Registry<External>;
  return *registry;
}

}  // namespace

extern "C" {

CUresult cuImportExternalMemory(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  SIM_CALL(kContext);
  if (!memory || !description || !description->size) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != kOpaqueDescriptor) return CUDA_ERROR_NOT_SUPPORTED;
  PhysicalRef physical = import_share(description->handle.fd);
  if (!physical || description->size > physical->bytes) return CUDA_ERROR_INVALID_VALUE;
  berth::UniqueFd ours(description->handle.fd);  // a successful import takes the descriptor over
  *memory =
      externals().add<CUexternalMemory>(std::make_shared<External>(External{std::move(physical), description->size}));
  return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* pointer, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  SIM_CALL(kContext);
  auto external = externals().find(memory);
  if (!external) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer || !buffer || !buffer->size || buffer->flags || buffer->offset + buffer->size > external->bytes ||
      buffer->offset + buffer->size < buffer->offset)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t view = take_addresses(external->physical->bytes);
  if (!view || !map_physical(*external->physical, 0, external->physical->bytes, view)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = view + buffer->offset;
  range.bytes = buffer->size;
  range.kind = RangeKind::imported;
  range.context = call.context;
  range.device = call.context->device;
  range.physical = external->physical;
  range.offset = buffer->offset;
  range.view = view;
  *pointer = range.start;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  SIM_CALL(kContext);
  return externals().remove(memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // extern "C"
