// Memory of other processes: charged to the exporter. The daemon is told how much an importer has open, so that it is not
// taken for overhead where NVML lists it here too.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"

namespace berth::shim::intercept {
namespace {

void note_import(AllocCall& call, Space space, uint64_t key, uint64_t bytes) {
  uint32_t device;
  if (!current_device(&device)) return;
  Allocation import;
  import.space = space;
  import.kind = wire::Kind::imported;
  import.device = static_cast<uint8_t>(device);
  import.key = key;
  call.client().reserve(device, wire::Kind::imported, bytes, wire::Force::taken, &import.bytes);
  call.client().table.insert(import);
}

template <class Real>
CUresult close(FreeCall& call, Space space, uint64_t key, Real real) {
  Allocation import;
  bool ours = call.client().table.remove(space, key, &import);
  CUresult result = real();
  if (!ours) return result;
  if (result == CUDA_SUCCESS) call.client().release(import);
  else call.client().table.insert(import);
  return result;
}

CUresult opened(AllocCall& call, CUresult result, CUdeviceptr* pointer) {
  CUdeviceptr base;
  size_t bytes = 0;
  if (result == CUDA_SUCCESS && real::cuMemGetAddressRange_v2(&base, &bytes, *pointer) == CUDA_SUCCESS)
    note_import(call, Space::external, *pointer, bytes);
  return result;
}

}  // namespace

CUresult cuIpcOpenMemHandle(AllocCall& call, decltype(&::cuIpcOpenMemHandle) real, CUdeviceptr* pointer, CUipcMemHandle handle,
                            unsigned flags) {
  return opened(call, real(pointer, handle, flags), pointer);
}
CUresult cuIpcOpenMemHandle_v2(AllocCall& call, decltype(&::cuIpcOpenMemHandle_v2) real, CUdeviceptr* pointer,
                               CUipcMemHandle handle, unsigned flags) {
  return opened(call, real(pointer, handle, flags), pointer);
}
CUresult cuIpcCloseMemHandle(FreeCall& call, decltype(&::cuIpcCloseMemHandle) real, CUdeviceptr pointer) {
  return close(call, Space::external, pointer, [&] { return real(pointer); });
}

CUresult cuImportExternalMemory(AllocCall& call, decltype(&::cuImportExternalMemory) real, CUexternalMemory* memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  CUresult result = real(memory, description);
  if (result == CUDA_SUCCESS) note_import(call, Space::external, reinterpret_cast<uint64_t>(*memory), description->size);
  return result;
}
CUresult cuDestroyExternalMemory(FreeCall& call, decltype(&::cuDestroyExternalMemory) real, CUexternalMemory memory) {
  return close(call, Space::external, reinterpret_cast<uint64_t>(memory), [&] { return real(memory); });
}

}  // namespace berth::shim::intercept
