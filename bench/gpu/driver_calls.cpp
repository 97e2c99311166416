// Times of single driver calls in one process, as JSON: loading the library and cuInit
// in milliseconds (processor time too), the rest in
// microseconds a call. Run alone and under `berth run`; the differences are what berth costs.
#include <dlfcn.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "abi/driver_api.h"

namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double cpu_us() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto us = [](const timeval& t) { return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec); };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

template <class Call>
double per_call(int count, Call call) {
  for (int i = 0; i < count / 10 + 1; ++i) call();
  double begin = now_us();
  for (int i = 0; i < count; ++i) call();
  return (now_us() - begin) / count;
}

constexpr char kPtx[] = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry empty()
{
  ret;
}
.visible .entry ten_us()
{
  .reg .u64 %rd<3>;
  .reg .pred %p;
  mov.u64 %rd0, %globaltimer;
LOOP:
  mov.u64 %rd1, %globaltimer;
  sub.u64 %rd2, %rd1, %rd0;
  setp.lt.u64 %p, %rd2, 10000;
  @%p bra LOOP;
  ret;
}
)";

}  // namespace

int main() {
  // Loading counts: the shim opens the real library at the first call, so what dlopen costs alone is inside its cuInit.
  double begin = now_us(), cpu = cpu_us();
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
#define D(name) reinterpret_cast<decltype(&name)>(dlsym(library, #name))
  if (D(cuInit)(0) != CUDA_SUCCESS) return 1;
  double init = now_us() - begin, init_cpu = cpu_us() - cpu;
  CUcontext context;
  D(cuDevicePrimaryCtxRetain)(&context, 0);
  D(cuCtxSetCurrent)(context);
  auto get_device = D(cuCtxGetDevice);
  CUdevice device;
  double query = per_call(1000000, [&] { get_device(&device); });
  auto allocate = D(cuMemAlloc_v2);
  auto release = D(cuMemFree_v2);
  CUdeviceptr pointer;
  double pair = per_call(500, [&] { allocate(&pointer, 16 << 20); release(pointer); });
  double small = per_call(500, [&] { allocate(&pointer, 4096); release(pointer); });
  CUmodule module;
  CUfunction function;
  CUstream stream;
  D(cuModuleLoadData)(&module, kPtx);
  D(cuModuleGetFunction)(&function, module, "empty");
  D(cuStreamCreate)(&stream, 1);
  auto launch = D(cuLaunchKernel);
  auto synchronise = D(cuStreamSynchronize);
  double launched = per_call(2000, [&] {
    for (int i = 0; i < 100; ++i) launch(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
    synchronise(stream);
  }) / 100;
  // Launches of 10 us each into a queue that never fills: what the caller pays, the device's time left out.
  CUfunction ten_us;
  D(cuModuleGetFunction)(&ten_us, module, "ten_us");
  double queued = 0;
  for (int round = 0; round < 120; ++round) {
    double start = now_us();
    for (int i = 0; i < 100; ++i) launch(ten_us, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
    if (round >= 20) queued += now_us() - start;
    synchronise(stream);
  }
  queued /= 100 * 100;
  auto async = D(cuMemAllocAsync);
  auto free_async = D(cuMemFreeAsync);
  double pool = per_call(2000, [&] { async(&pointer, 1 << 20, stream); free_async(pointer, stream); });
  std::printf("{\"load_and_cuInit_ms\": %.3f, \"load_and_cuInit_cpu_ms\": %.3f, \"query_us\": %.5f, \"alloc_free_16MiB_us\": %.3f, "
              "\"alloc_free_4KiB_us\": %.3f, \"launch_us\": %.4f, \"launch_10us_kernel_us\": %.4f, \"async_alloc_free_us\": %.3f}\n",
              init / 1e3, init_cpu / 1e3, query, pair, small, launched, queued, pool);
  return 0;
}
