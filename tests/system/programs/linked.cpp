// B25: a program that needs libcuda.so.1 by name, looks its functions up in all ways, and uses the driver before main, after main
// and when a thread ends.
#include <dlfcn.h>

#include <cstdio>
#include <thread>

#include "abi/driver_api.h"

namespace {

struct Early {
  Early() {
    CUcontext context;
    result = cuInit(0);
    if (!result) result = cuDevicePrimaryCtxRetain(&context, 0);
    if (!result) result = cuCtxSetCurrent(context);
    if (!result) result = cuMemAlloc_v2(&pointer, 64 << 20);
  }
  ~Early() { cuMemFree_v2(pointer); }  // whatever the driver says so late
  CUresult result = CUDA_ERROR_UNKNOWN;
  CUdeviceptr pointer = 0;
} early;

struct AtThreadsEnd {
  ~AtThreadsEnd() {
    if (pointer) cuMemFree_v2(pointer);
  }
  CUdeviceptr pointer = 0;
};
thread_local AtThreadsEnd at_threads_end;

}  // namespace

int main() {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int same = 0;
  for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuGetProcAddress_v2"}) {
    void* found = dlsym(handle, name);
    same += found && found == dlsym(handle, name) && found == dlsym(RTLD_DEFAULT, name) && found == dlsym(RTLD_NEXT, name) &&
            found == dlsym(RTLD_NEXT, name);
  }
  same += dlsym(handle, "cuInit") == reinterpret_cast<void*>(&cuInit);
  int again = reinterpret_cast<decltype(&cuInit)>(dlsym(handle, "cuInit"))(0);
  CUcontext context;
  cuCtxGetCurrent(&context);
  std::thread([&] {
    cuCtxSetCurrent(context);
    cuMemAlloc_v2(&at_threads_end.pointer, 64 << 20);
  }).join();
  size_t free = 0, total = 0;
  cuMemGetInfo_v2(&free, &total);
  std::printf("{\"early\": %d, \"same\": %d, \"again\": %d, \"total\": %zu}\n", early.result, same, again, total);
}
