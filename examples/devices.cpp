// Uses every GPU that the process sees, through CUDA's driver interface: fills a buffer on each, passes it round from one to the
// next, and checks what comes back.
//
//   berth run -g 4 -m 2G build/examples/devices          one process, four GPUs
//   berth run -g 4 -m 2G mpirun -n 4 build/examples/devices --rank     a process for each, one GPU a rank
//
// Nothing in here knows of berth. With --rank a process uses one GPU alone, that of its rank on the machine, as the launcher has
// numbered it (OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, LOCAL_RANK).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#if __has_include(<cuda.h>)
#include <cuda.h>
#else
// The few declarations of cuda.h that are used here.
extern "C" {
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
constexpr CUresult CUDA_SUCCESS = 0;
CUresult cuInit(unsigned flags);
CUresult cuDeviceGetCount(int* count);
CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDeviceGetName(char* name, int length, CUdevice device);
CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemGetInfo_v2(size_t* free, size_t* total);
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemsetD32_v2(CUdeviceptr pointer, unsigned value, size_t count);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes);
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes);
CUresult cuGetErrorName(CUresult error, const char** name);
}
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#endif

namespace {

constexpr size_t kWords = 1 << 20;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", what, name);
  std::exit(1);
}
#define CHECK(call) check(call, #call)

struct Gpu {
  int ordinal = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr buffer = 0;
};

Gpu open(int ordinal) {
  Gpu gpu;
  gpu.ordinal = ordinal;
  CHECK(cuDeviceGet(&gpu.device, ordinal));
  CHECK(cuDevicePrimaryCtxRetain(&gpu.context, gpu.device));
  CHECK(cuCtxSetCurrent(gpu.context));
  CHECK(cuMemAlloc(&gpu.buffer, kWords * 4));
  CHECK(cuMemsetD32(gpu.buffer, 1000u + static_cast<unsigned>(ordinal), kWords));
  char name[64], bus[32];
  size_t free = 0, total = 0;
  CHECK(cuDeviceGetName(name, sizeof name, gpu.device));
  CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, gpu.device));
  CHECK(cuMemGetInfo(&free, &total));
  std::printf("GPU %d: %s, %s, %zu of %zu MiB free\n", ordinal, name, bus, free >> 20, total >> 20);
  std::fflush(stdout);
  return gpu;
}

// The value that all words of the buffer have; ends the program if they differ.
unsigned value_on(const Gpu& gpu) {
  std::vector<unsigned> words(kWords);
  CHECK(cuCtxSetCurrent(gpu.context));
  CHECK(cuMemcpyDtoH(words.data(), gpu.buffer, kWords * 4));
  for (unsigned word : words)
    if (word != words[0]) std::fprintf(stderr, "GPU %d: its words differ\n", gpu.ordinal), std::exit(1);
  return words[0];
}

void close(const Gpu& gpu) {
  CHECK(cuCtxSetCurrent(gpu.context));
  CHECK(cuMemFree(gpu.buffer));
  CHECK(cuDevicePrimaryCtxRelease(gpu.device));
}

int rank_on_this_machine() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool one = argc > 1 && std::strcmp(argv[1], "--rank") == 0;
  int count = 0;
  CHECK(cuInit(0));
  CHECK(cuDeviceGetCount(&count));
  if (one) {
    Gpu gpu = open(rank_on_this_machine() % count);
    std::printf("rank %d: its buffer holds %u\n", rank_on_this_machine(), value_on(gpu));
    close(gpu);
    return 0;
  }
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back(open(i));
  // Round the ring: each gets what the one before it had, the first what the last had.
  for (int i = count - 1; i > 0; --i)
    CHECK(cuMemcpyPeer(gpus[static_cast<size_t>(i)].buffer, gpus[static_cast<size_t>(i)].context, gpus[static_cast<size_t>(i) - 1].buffer,
                       gpus[static_cast<size_t>(i) - 1].context, kWords * 4));
  bool right = true;
  for (const Gpu& gpu : gpus) {
    unsigned expected = 1000u + static_cast<unsigned>(gpu.ordinal > 0 ? gpu.ordinal - 1 : 0);
    right &= value_on(gpu) == expected;
  }
  for (const Gpu& gpu : gpus) close(gpu);
  std::printf("%d GPUs, passed round: %s\n", count, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
