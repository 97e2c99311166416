// B13: finds the driver as the static CUDA runtime does (one dlopen, one dlsym, everything else through cuGetProcAddress, asked
// before cuInit) and takes stream-ordered memory from a pool that gives nothing back.
#include <dlfcn.h>

#include <cstdio>

#include "abi/driver_api.h"

namespace {

decltype(&cuGetProcAddress_v2) look;

template <class Function>
Function entry(const char* name) {
  void* pointer = nullptr;
  int status = 0;
  look(name, &pointer, 12000, 0, &status);
  return reinterpret_cast<Function>(pointer);
}

}  // namespace

int main() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::printf("%s\n", dlerror()), 2;
  look = reinterpret_cast<decltype(look)>(dlsym(library, "cuGetProcAddress_v2"));
  auto init = entry<decltype(&cuInit)>("cuInit");
  auto retain = entry<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  auto set_current = entry<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent");
  auto default_pool = entry<decltype(&cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool");
  auto set_attribute = entry<decltype(&cuMemPoolSetAttribute)>("cuMemPoolSetAttribute");
  auto get_attribute = entry<decltype(&cuMemPoolGetAttribute)>("cuMemPoolGetAttribute");
  auto allocate = entry<decltype(&cuMemAllocAsync)>("cuMemAllocAsync");
  auto give_back = entry<decltype(&cuMemFreeAsync)>("cuMemFreeAsync");
  auto synchronize = entry<decltype(&cuStreamSynchronize)>("cuStreamSynchronize");
  auto info = entry<decltype(&cuMemGetInfo_v2)>("cuMemGetInfo");
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  uint64_t keep = ~0ull, most = 0;
  if (init(0) || retain(&context, 0) || set_current(context) || default_pool(&pool, 0)) return 2;
  set_attribute(pool, berth::abi::kMemPoolAttrReleaseThreshold, &keep);
  constexpr size_t kPiece = 64 << 20;
  static CUdeviceptr pieces[4096];
  int count = 0;
  CUresult result = CUDA_SUCCESS;
  while (count < 4096 && (result = allocate(&pieces[count], kPiece, nullptr)) == CUDA_SUCCESS) ++count;
  size_t free = 0, total = 0;
  info(&free, &total);
  constexpr int kReservedHigh = 6;
  get_attribute(pool, kReservedHigh, &most);
  CUresult freed = CUDA_SUCCESS, again = CUDA_SUCCESS;
  for (int i = 0; i < count; ++i)
    if (CUresult bad = give_back(pieces[i], nullptr)) freed = bad;
  synchronize(nullptr);
  CUdeviceptr pointer;
  again = allocate(&pointer, kPiece, nullptr);
  std::printf("{\"pieces\": %d, \"result\": %d, \"total\": %zu, \"free\": %zu, \"freed\": %d, \"again\": %d, \"most\": %llu}\n", count,
              result, total, free, freed, again, static_cast<unsigned long long>(most));
  std::fflush(stdout);
  std::getchar();
}
