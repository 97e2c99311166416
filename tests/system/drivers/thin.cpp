// A thin driver: every name jumps into a driver that lies elsewhere and is opened when this one is loaded. While it starts, it
// asks for libcuda.so.1 again and calls it, as the loaders of WSL and of some tools do.
#include <dlfcn.h>

#include "abi/driver_api.h"

namespace {

struct Slot {
  const char* name;
  void* address;
};

void* store;

}  // namespace

extern "C" {
extern Slot __start_thin_slots[], __stop_thin_slots[];  // made by thin/sim/skeleton.inc

__attribute__((constructor)) void open_store() {
  store = dlopen(BERTH_STORE, RTLD_NOW | RTLD_LOCAL);
  for (Slot* slot = __start_thin_slots; slot != __stop_thin_slots; ++slot) slot->address = store ? dlsym(store, slot->name) : nullptr;
}

CUresult cuInit(unsigned flags) {
  int version = 0;
  void* again = dlopen("libcuda.so.1", RTLD_NOW);
  auto ask = reinterpret_cast<decltype(&cuDriverGetVersion)>(dlsym(again, "cuDriverGetVersion"));
  auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(store, "cuInit"));
  return ask && ask(&version) == CUDA_SUCCESS && version ? init(flags) : CUDA_ERROR_UNKNOWN;
}
}
