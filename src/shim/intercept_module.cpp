// Modules and libraries: what they take from the device, and when (lazy loading), only NVML tells. They are never refused,
// so that a program within its quota starts; what they took counts against later allocations.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"

namespace berth::shim::intercept {
namespace {

CUresult refreshed(ClientCall& call, CUresult result) {
  uint32_t device;
  if (result == CUDA_SUCCESS && current_device(&device)) call.client().refresh(device);
  return result;
}

}  // namespace

CUresult cuModuleLoad(AllocCall& call, decltype(&::cuModuleLoad) real, CUmodule* module, const char* file) {
  return refreshed(call, real(module, file));
}
CUresult cuModuleLoadData(AllocCall& call, decltype(&::cuModuleLoadData) real, CUmodule* module, const void* image) {
  return refreshed(call, real(module, image));
}
CUresult cuModuleLoadDataEx(AllocCall& call, decltype(&::cuModuleLoadDataEx) real, CUmodule* module, const void* image,
                            unsigned count, CUjit_option* options, void** values) {
  return refreshed(call, real(module, image, count, options, values));
}
CUresult cuModuleLoadFatBinary(AllocCall& call, decltype(&::cuModuleLoadFatBinary) real, CUmodule* module, const void* image) {
  return refreshed(call, real(module, image));
}
CUresult cuLibraryLoadData(AllocCall& call, decltype(&::cuLibraryLoadData) real, CUlibrary* library, const void* code,
                           CUjit_option* jit_options, void** jit_values, unsigned jit_count, CUlibraryOption* options,
                           void** values, unsigned count) {
  return refreshed(call, real(library, code, jit_options, jit_values, jit_count, options, values, count));
}
CUresult cuLibraryLoadFromFile(AllocCall& call, decltype(&::cuLibraryLoadFromFile) real, CUlibrary* library, const char* file,
                               CUjit_option* jit_options, void** jit_values, unsigned jit_count, CUlibraryOption* options,
                               void** values, unsigned count) {
  return refreshed(call, real(library, file, jit_options, jit_values, jit_count, options, values, count));
}
CUresult cuModuleUnload(FreeCall& call, decltype(&::cuModuleUnload) real, CUmodule module) {
  return refreshed(call, real(module));
}
CUresult cuLibraryUnload(FreeCall& call, decltype(&::cuLibraryUnload) real, CUlibrary library) {
  return refreshed(call, real(library));
}

}  // namespace berth::shim::intercept
