// Contract tests: one body that runs on the plain real driver, on the simulated GPU and on the shim over either. It prints a
// trace of result codes, attributes and order; nothing in it depends on the machine's size, on addresses or on time. What the
// plain real driver printed is the golden file; everything else must print the same.
#pragma once
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "abi/driver_api.h"

namespace contract {

inline void* library() {
  static void* handle = [] {
    void* found = dlopen("libcuda.so.1", RTLD_NOW);
    if (!found) {
      std::printf("no driver: %s\n", dlerror());
      std::exit(2);
    }
    return found;
  }();
  return handle;
}

template <class Function>
Function entry(const char* name) {
  void* found = dlsym(library(), name);
  if (!found) {
    std::printf("no function %s\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Function>(found);
}

inline CUresult show(const char* name, CUresult result) {
  std::printf("%s -> %d\n", name, static_cast<int>(result));
  return result;
}

// A call of the driver by name; CALL prints it with its result.
#define D(name) contract::entry<decltype(&::name)>(#name)
#define CALL(name, ...) contract::show(#name, D(name)(__VA_ARGS__))
// A call with a remark on what it is about.
#define CALLED(remark, name, ...) contract::show(remark ": " #name, D(name)(__VA_ARGS__))
#define VALUE(what, value) std::printf("%s = %lld\n", what, static_cast<long long>(value))

inline size_t free_bytes() {
  size_t free = 0, total = 0;
  D(cuMemGetInfo_v2)(&free, &total);
  return free;
}

// cuInit, the primary context of device 0, current.
inline CUcontext start() {
  CUcontext context = nullptr;
  if (D(cuInit)(0) != CUDA_SUCCESS || D(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS ||
      D(cuCtxSetCurrent)(context) != CUDA_SUCCESS) {
    std::printf("cannot start\n");
    std::exit(2);
  }
  return context;
}

struct Section {
  const char* name;
  void (*run)();
};
extern const Section kSections[];
extern const int kSectionCount;

}  // namespace contract
