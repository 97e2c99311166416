// A library on the shared CUDA runtime that is opened while the program runs, as languages and frameworks do.
#include "support/runtime/fake_runtime.h"

// The number of devices; with a device the one that is current once it has been chosen.
extern "C" __attribute__((visibility("default"))) int device_after(int device) {
  int answer = -1;
  cudaError_t result = device < 0 ? cudaGetDeviceCount(&answer) : cudaSetDevice(device);
  if (result == cudaSuccess && device >= 0) result = cudaGetDevice(&answer);
  return result == cudaSuccess ? answer : -static_cast<int>(result);
}
