// The CUDA driver as berth-load sees it: one table of entry points, found at run time, so that nothing of CUDA is
// needed to build or to start the program.
#pragma once
#include <cstdint>
#include <string>

#include "abi/driver_api.h"
#include "base/result.h"

namespace berth::load {

// clang-format off
#define BERTH_LOAD_CALLS(X)                                                                                         \
  X(cuArrayCreate_v2) X(cuArrayDestroy) X(cuCtxSetCurrent) X(cuDeviceGet) X(cuDeviceGetAttribute)                   \
  X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxRetain)                \
  X(cuDeviceTotalMem_v2) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventSynchronize)               \
  X(cuGetErrorName) X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch)         \
  X(cuInit) X(cuLaunchKernel) X(cuMemAddressFree) X(cuMemAddressReserve) X(cuMemAllocAsync) X(cuMemAllocHost_v2)    \
  X(cuMemAllocManaged) X(cuMemAllocPitch_v2) X(cuMemAlloc_v2) X(cuMemCreate) X(cuMemFreeAsync) X(cuMemFreeHost)     \
  X(cuMemFree_v2) X(cuMemGetAllocationGranularity) X(cuMemGetInfo_v2) X(cuMemMap) X(cuMemRelease)                   \
  X(cuMemSetAccess) X(cuMemUnmap) X(cuMemcpy2D_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoH_v2)                       \
  X(cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemsetD32Async) X(cuModuleGetFunction) X(cuModuleLoadData)         \
  X(cuModuleUnload) X(cuStreamBeginCapture_v2) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamEndCapture)        \
  X(cuStreamSynchronize)
// clang-format on

struct Driver {
#define X(name) decltype(&::name) name = nullptr;
  BERTH_LOAD_CALLS(X)
#undef X

  // "CUDA_ERROR_OUT_OF_MEMORY (2)".
  std::string describe(CUresult code) const;
};

// How entry points are looked up: by exported name as programs linked with the driver do, or through cuGetProcAddress
// as the CUDA runtime does.
enum class Lookup { dlsym, proc_address };

// Opens the driver: the libcuda.so.1 that the loader finds, unless BERTH_DRIVER ("sim", or a path) names another one. A
// folder of LD_LIBRARY_PATH that has one and berth's own library come before BERTH_DRIVER, so a job is never escaped
// from. The library stays open for good. Throws Error.
Driver open_driver(Lookup lookup);

// Throws Error unless `code` is success. `call` is the driver's function.
void must(const Driver& driver, CUresult code, const char* call);

}  // namespace berth::load
