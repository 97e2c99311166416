// A program on the shared CUDA runtime, linked as nvcc links it (versioned names): runtime_devices WHAT [ARGUMENT]
//   look            a line for each device
//   use MIB...      allocates so many on device 0, 1, ... and says what came of it; ends with its standard input
//   threads         a thread for each device, with all of them at work at once
//   reset           what a reset of the last device leaves of the first
//   handle          the devices as dlsym finds the function by the runtime's handle, and by the program's scope
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/runtime/fake_runtime.h"

namespace {

int count() {
  int devices = -1;
  cudaError_t result = cudaGetDeviceCount(&devices);
  return result == cudaSuccess ? devices : -static_cast<int>(result);
}

void look() {
  for (int i = 0; i < count(); ++i) {
    union { RuntimeDeviceProp13 told; char room[4096]; } p;
    char bus[32] = "";
    cudaGetDeviceProperties(reinterpret_cast<cudaDeviceProp*>(&p), i);
    cudaDeviceGetPCIBusId(bus, sizeof bus, i);
    std::string uuid;
    for (unsigned char byte : p.told.uuid.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", byte);
      uuid += digits;
    }
    std::printf("%d %s %s %zu\n", i, uuid.c_str(), bus, p.told.totalGlobalMem);
  }
}

int use(int devices, char** mib) {
  for (int i = 0; i < devices; ++i) {
    void* pointer = nullptr;
    cudaError_t chosen = cudaSetDevice(i), result = chosen;
    if (chosen == cudaSuccess) result = cudaMalloc(&pointer, std::strtoull(mib[i], nullptr, 10) << 20);
    cudaPointerAttributes told[4] = {};
    if (pointer) cudaPointerGetAttributes(told, pointer);
    std::printf("%d %d %d\n", i, static_cast<int>(result), pointer ? told[0].device : -1);
  }
  std::fflush(stdout);
  char end;
  return ::read(0, &end, 1) < 0;
}

int threads() {
  int devices = count();
  std::vector<std::thread> all;
  std::vector<int> wrong(static_cast<size_t>(devices), 0);
  for (int i = 0; i < devices; ++i)
    all.emplace_back([i, &wrong] {
      int& bad = wrong[static_cast<size_t>(i)];
      bad += cudaSetDevice(i) != cudaSuccess;
      for (int round = 0; round < 200; ++round) {
        void* pointer = nullptr;
        int now = -1;
        cudaPointerAttributes told[4] = {};
        bad += cudaMalloc(&pointer, 1 << 20) != cudaSuccess || cudaPointerGetAttributes(told, pointer) != cudaSuccess || told[0].device != i;
        bad += cudaGetDevice(&now) != cudaSuccess || now != i || cudaFree(pointer) != cudaSuccess;
      }
    });
  int bad = 0;
  for (size_t i = 0; i < all.size(); ++i) all[i].join(), bad += wrong[i];
  std::printf("%d threads, %d wrong\n", devices, bad);
  return bad != 0;
}

int reset() {
  int last = count() - 1;
  unsigned char byte = 0;
  void *kept = nullptr, *gone = nullptr;
  size_t free[3], total;
  cudaSetDevice(0), cudaMalloc(&kept, 64 << 20), cudaMemset(kept, 7, 64 << 20);
  cudaSetDevice(last), cudaMemGetInfo(&free[0], &total), cudaMalloc(&gone, 64 << 20), cudaMemGetInfo(&free[1], &total);
  cudaError_t result = cudaDeviceReset();
  cudaMemGetInfo(&free[2], &total);
  cudaSetDevice(0), cudaMemcpy(&byte, kept, 1, 2), cudaFree(kept);
  std::printf("%d %zu %zu %d\n", static_cast<int>(result), (free[0] - free[1]) >> 20, (free[2] - free[1]) >> 20, byte);
  // A stream is something to lose, too.
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaSetDevice(last), cudaMalloc(&gone, 64 << 20), result = cudaDeviceReset();
  cudaError_t beside = cudaStreamSynchronize(stream), destroyed = cudaStreamDestroy(stream);
  // With nobody beside it the runtime resets its card.
  cudaMalloc(&gone, 64 << 20);
  cudaError_t alone = cudaDeviceReset();
  std::printf("%d %d %d %d %d\n", static_cast<int>(result), static_cast<int>(beside), static_cast<int>(destroyed), static_cast<int>(alone),
              static_cast<int>(cudaMemGetInfo(&free[0], &total)));
  return 0;
}

int by_handle() {
  using Count = cudaError_t (*)(int*);
  int found[2] = {-1, -1};
  void* handles[] = {dlopen("libcudart.so.13", RTLD_LAZY | RTLD_LOCAL), RTLD_DEFAULT};
  for (int i = 0; i < 2; ++i)
    if (auto ask = reinterpret_cast<Count>(dlsym(handles[i], "cudaGetDeviceCount"))) ask(&found[i]);
  std::printf("%d %d\n", found[0], found[1]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  if (what == "look") return look(), 0;
  if (what == "use") return use(argc - 2, argv + 2);
  if (what == "threads") return threads();
  if (what == "reset") return reset();
  if (what == "handle") return by_handle();
  return 2;
}
