#include "session.h"

#include <algorithm>
#include <chrono>

#include "kernels_ptx.h"

namespace berth::load {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kNonBlocking = 1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Session::Session(const Driver& driver, int device) : driver_(driver) {
  auto start = std::chrono::steady_clock::now();
  must(driver_, driver_.cuInit(0), "cuInit");
  init_seconds_ = seconds_since(start);
  int count = 0;
  must(driver_, driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (device < 0 || device >= count)
    throw Error{"no_device",
                "there is no device " + std::to_string(device) + ": this program sees " + std::to_string(count)};
  must(driver_, driver_.cuDeviceGet(&device_, device), "cuDeviceGet");
  char name[256] = "";
  must(driver_, driver_.cuDeviceGetName(name, sizeof name, device_), "cuDeviceGetName");
  device_name_ = name;
  size_t total = 0;
  must(driver_, driver_.cuDeviceTotalMem_v2(&total, device_), "cuDeviceTotalMem");
  total_bytes_ = total;
  int processors = 1, threads = 1;
  must(driver_, driver_.cuDeviceGetAttribute(&processors, abi::kDeviceAttrMultiprocessorCount, device_),
       "cuDeviceGetAttribute");
  must(driver_, driver_.cuDeviceGetAttribute(&threads, abi::kDeviceAttrMaxThreadsPerMultiprocessor, device_),
       "cuDeviceGetAttribute");
  blocks_ = std::max(1u, static_cast<unsigned>(processors) * (static_cast<unsigned>(threads) / kThreads));

  start = std::chrono::steady_clock::now();
  CUcontext context = nullptr;
  must(driver_, driver_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
  context_seconds_ = seconds_since(start);
  must(driver_, driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  must(driver_, driver_.cuModuleLoadData(&module_, kKernelsPtx), "cuModuleLoadData");
  fill_ = function("berth_fill");
  check_ = function("berth_check");
  spin_ = function("berth_spin");
  axpy_ = function("berth_axpy");
  must(driver_, driver_.cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
}

// The results are of no use any more: whatever fails here, the process ends next.
Session::~Session() {
  driver_.cuStreamDestroy_v2(stream_);
  driver_.cuModuleUnload(module_);
  driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

CUfunction Session::function(const char* name) {
  CUfunction found = nullptr;
  must(driver_, driver_.cuModuleGetFunction(&found, module_, name), "cuModuleGetFunction");
  return found;
}

void Session::launch(CUfunction function, void** parameters) {
  must(driver_, driver_.cuLaunchKernel(function, blocks_, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr),
       "cuLaunchKernel");
}

void Session::fill(CUdeviceptr address, uint64_t words, uint32_t seed) {
  void* parameters[] = {&address, &words, &seed};
  launch(fill_, parameters);
}

void Session::check(CUdeviceptr address, uint64_t words, uint32_t seed, CUdeviceptr errors) {
  void* parameters[] = {&address, &words, &seed, &errors};
  launch(check_, parameters);
}

void Session::spin(uint64_t nanoseconds) {
  void* parameters[] = {&nanoseconds};
  launch(spin_, parameters);
}

void Session::axpy(CUdeviceptr y, CUdeviceptr x, float a, uint64_t n) {
  void* parameters[] = {&y, &x, &a, &n};
  launch(axpy_, parameters);
}

void Session::synchronize() { must(driver_, driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

uint64_t Session::free_bytes() const {
  size_t free = 0, total = 0;
  must(driver_, driver_.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return free;
}

}  // namespace berth::load
