// A program of the shared CUDA runtime (nvcc --cudart shared) on several virtual devices: virtual_devices COUNT MIB_OF_EACH. One
// line for each check: name, tab, 1 or 0, tab, text.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

__global__ void add(int* x, int n, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

namespace {

constexpr int kInts = 1 << 20;
int count, failed = 0;
size_t mib;

void say(const char* name, bool fine, const std::string& text = "") {
  failed += !fine;
  std::printf("%s\t%d\t%s\n", name, fine, text.c_str());
}
bool ok(cudaError_t result) {
  if (result != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(result));
  return result == cudaSuccess;
}
int device_of(const void* pointer) {
  cudaPointerAttributes told{};
  return ok(cudaPointerGetAttributes(&told, pointer)) ? told.device : -9;
}
size_t free_mib() {
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  return free >> 20;
}

void look() {
  int devices = 0;
  say("devices are counted", ok(cudaGetDeviceCount(&devices)) && devices == count, std::to_string(devices));
  std::set<std::string> uuids, buses;
  bool totals = true, found = true, attributes = true;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    char bus[32] = "";
    int back = -1, number = -1;
    ok(cudaGetDeviceProperties(&p, i));
    ok(cudaDeviceGetPCIBusId(bus, sizeof bus, i));
    found &= ok(cudaDeviceGetByPCIBusId(&back, bus)) && back == i;
    attributes &= ok(cudaDeviceGetAttribute(&number, cudaDevAttrPciBusId, i)) && number == p.pciBusID;
    totals &= p.totalGlobalMem >> 20 == mib;
    uuids.emplace(p.uuid.bytes, p.uuid.bytes + 16);
    buses.insert(bus);
  }
  say("properties are each one's own", totals && int(uuids.size()) == count && int(buses.size()) == count, *buses.begin());
  say("they are found by their bus ids", found && attributes);
  say("a device out of range is refused", cudaSetDevice(count) == cudaErrorInvalidDevice && cudaSetDevice(-1) == cudaErrorInvalidDevice);
  cudaGetLastError();
}

void work() {
  bool right = true, named = true, copied = true;
  std::vector<int*> x(count);
  std::vector<int> back(kInts);
  for (int i = 0; i < count; ++i) {
    ok(cudaSetDevice(i)), ok(cudaMalloc(&x[i], kInts * 4)), ok(cudaMemset(x[i], 0, kInts * 4));
    add<<<kInts / 256, 256>>>(x[i], kInts, i + 1);
    ok(cudaMemcpy(back.data(), x[i], kInts * 4, cudaMemcpyDeviceToHost));
    right &= back[0] == i + 1 && back[kInts - 1] == i + 1;
    named &= device_of(x[i]) == i;
  }
  say("kernels on each", right);
  say("pointers know their device", named && device_of(&right) < 0);
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      int can = -1, *y;
      if (a != b) copied &= ok(cudaDeviceCanAccessPeer(&can, a, b)) && can == 1;
      ok(cudaSetDevice(b)), ok(cudaMalloc(&y, kInts * 4)), ok(cudaMemset(y, 0, kInts * 4));
      if (a != b) copied &= ok(cudaDeviceEnablePeerAccess(a, 0)) && cudaDeviceEnablePeerAccess(a, 0) == cudaErrorPeerAccessAlreadyEnabled;
      cudaGetLastError();
      copied &= ok(cudaMemcpyPeer(y, b, x[a], a, kInts * 4));
      add<<<kInts / 256, 256>>>(x[a], kInts, 0);  // a kernel of b on memory of a
      ok(cudaMemcpy(back.data(), y, kInts * 4, cudaMemcpyDefault));
      copied &= back[kInts - 1] == a + 1;
      if (a != b) copied &= ok(cudaDeviceDisablePeerAccess(a));
      ok(cudaFree(y));
    }
  say("peer queries, access and copies", copied);
  for (int* one : x) ok(cudaFree(one));
}

void threads() {
  std::vector<int> wrong(count, 0);
  std::vector<std::thread> all;
  for (int i = 0; i < count; ++i)
    all.emplace_back([i, &wrong] {
      wrong[i] += !ok(cudaSetDevice(i));
      for (int round = 0; round < 50; ++round) {
        int *p = nullptr, now = -1, at = -1, value = 0;
        cudaStream_t stream;
        wrong[i] += !ok(cudaStreamCreate(&stream)) || !ok(cudaMallocAsync(&p, kInts * 4, stream)) || device_of(p) != i;
        cudaMemsetAsync(p, 0, kInts * 4, stream);
        add<<<kInts / 256, 256, 0, stream>>>(p, kInts, i + 7);
        cudaMemcpyAsync(&value, p + kInts - 1, 4, cudaMemcpyDeviceToHost, stream);
        cudaFreeAsync(p, stream);
        wrong[i] += !ok(cudaStreamSynchronize(stream)) || value != i + 7;
#if CUDART_VERSION >= 12080
        wrong[i] += !ok(cudaStreamGetDevice(stream, &at)) || at != i;
#endif
        wrong[i] += !ok(cudaGetDevice(&now)) || now != i || !ok(cudaStreamDestroy(stream));
      }
    });
  int bad = 0, first = -1;
  for (int i = 0; i < count; ++i) all[i].join(), bad += wrong[i];
  ok(cudaSetDevice(count - 1));
  std::thread([&] {
    void* p = nullptr;
    if (ok(cudaMalloc(&p, 1 << 20))) first = device_of(p), ok(cudaFree(p));
  }).join();
  say("a thread that has chosen none uses the first", first == 0, std::to_string(first));
  say("threads with a device each", bad == 0, std::to_string(bad) + " wrong");
}

void quotas() {
  bool held_to = true, own = true;
  std::string text;
  for (int i = 0; i < count; ++i) {
    ok(cudaSetDevice(i));
    std::vector<void*> held;
    void* p;
    size_t neighbour = (ok(cudaSetDevice((i + 1) % count)), free_mib());
    ok(cudaSetDevice(i));
    while (held.size() * 128 < 2 * mib && cudaMalloc(&p, 128 << 20) == cudaSuccess) held.push_back(p);
    cudaGetLastError();
    held_to &= held.size() * 128 <= mib && held.size() * 128 + 1600 >= mib;
    ok(cudaSetDevice((i + 1) % count));
    own &= count == 1 || free_mib() == neighbour;
    text += std::to_string(held.size() * 128) + " ";
    for (void* one : held) ok(cudaFree(one));
  }
  say("each is held to its own quota", held_to, text + "MiB");
  say("and takes nothing from its neighbour", own);
}

void pools_and_managed() {
  bool fine = true;
  for (int i = 0; i < count; ++i) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, i};
    cudaMemPool_t pool;
    cudaStream_t stream;
    void *p = nullptr, *m = nullptr;
    ok(cudaSetDevice((i + 1) % count));
    fine &= ok(cudaStreamCreate(&stream)) && ok(cudaMemPoolCreate(&pool, &properties)) && ok(cudaMallocFromPoolAsync(&p, 64 << 20, pool, stream));
    fine &= device_of(p) == i && ok(cudaFreeAsync(p, stream)) && ok(cudaStreamSynchronize(stream)) && ok(cudaMemPoolDestroy(pool));
    fine &= ok(cudaMallocManaged(&m, 8 << 20));
#if CUDART_VERSION >= 13000
    fine &= ok(cudaMemPrefetchAsync(m, 8 << 20, cudaMemLocation{cudaMemLocationTypeDevice, i}, 0, stream));
#else
    fine &= ok(cudaMemPrefetchAsync(m, 8 << 20, i, stream));
#endif
    fine &= ok(cudaStreamSynchronize(stream)) && ok(cudaFree(m)) && ok(cudaStreamDestroy(stream));
  }
  say("pools and managed memory of each", fine);
}

void graphs() {
  bool fine = true;
  for (int i = 0; i < count; ++i) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t allocated, freed;
    cudaStream_t stream;
    cudaMemAllocNodeParams params{};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location = {cudaMemLocationTypeDevice, i};
    params.bytesize = 16 << 20;
    ok(cudaSetDevice(i));
    fine &= ok(cudaGraphCreate(&graph, 0)) && ok(cudaGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &params));
    fine &= ok(cudaGraphAddMemFreeNode(&freed, graph, &allocated, 1, params.dptr)) && ok(cudaGraphInstantiate(&exec, graph, 0));
    fine &= ok(cudaStreamCreate(&stream)) && ok(cudaGraphLaunch(exec, stream)) && ok(cudaStreamSynchronize(stream));
    fine &= ok(cudaGraphMemAllocNodeGetParams(allocated, &params)) && params.poolProps.location.id == i;
    fine &= ok(cudaGraphExecDestroy(exec)) && ok(cudaGraphDestroy(graph)) && ok(cudaStreamDestroy(stream)) && ok(cudaDeviceGraphMemTrim(i));
  }
  say("memory nodes of graphs", fine);
}

void reset() {
  int *kept, value = 0;
  void* gone;
  ok(cudaSetDevice(0)), ok(cudaMalloc(&kept, 4)), ok(cudaMemset(kept, 7, 4));
  ok(cudaSetDevice(count - 1));
  size_t before = free_mib();
  ok(cudaMalloc(&gone, 512 << 20));
  size_t during = free_mib();
  bool fine = ok(cudaDeviceReset());
  size_t after = free_mib();
  ok(cudaSetDevice(0)), ok(cudaMemcpy(&value, kept, 4, cudaMemcpyDefault));
  say("a reset takes only its own device's memory", fine && before - during >= 512 && after >= before && value == 0x07070707,
      std::to_string(before) + " " + std::to_string(during) + " " + std::to_string(after));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  count = std::atoi(argv[1]), mib = std::strtoull(argv[2], nullptr, 10);
  look(), work(), threads(), pools_and_managed(), graphs(), quotas();
  if (count > 1) reset();
  return failed != 0;
}
