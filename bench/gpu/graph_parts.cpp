// What a graph in parts costs on the plain driver (docs/adr/0006), as JSON, a line for each number of parts: a chain of
// 1000 kernels of 10 us, cloned and divided as the shim does it. Times of making parts are taken while the stream waits
// for a word, as held work does, which a thread writes after two seconds: a time of about that says that the call waits
// for the stream.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "abi/driver_api.h"

namespace {

constexpr int kNodes = 1000, kLaunches = 20;

constexpr char kPtx[] = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry berth_spin(.param .u64 nanoseconds)
{
  .reg .u64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd0, [nanoseconds];
  mov.u64 %rd1, %globaltimer;
LOOP:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd3, %rd2, %rd1;
  setp.lt.u64 %p, %rd3, %rd0;
  @%p bra LOOP;
  ret;
}
)";

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void* library;
void check(CUresult result, const char* name) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", name, static_cast<int>(result));
  std::exit(1);
}
#define D(name) reinterpret_cast<decltype(&name)>(dlsym(library, #name))
#define MUST(name, ...) check(D(name)(__VA_ARGS__), #name)

struct Part {
  CUgraph graph;
  CUgraphExec exec;
};

// Nodes [from, to) of `nodes` are in `graph`, to be in `parts` parts.
void divide(CUgraph graph, std::vector<CUgraphNode>& nodes, int from, int to, int parts, std::vector<Part>* made) {
  if (parts == 1) return made->push_back({graph, nullptr});
  int middle = from + (to - from) / 2;
  CUgraph rest;
  MUST(cuGraphClone, &rest, graph);
  for (int i = from; i < to; ++i) {
    CUgraphNode copy, *node = &nodes[static_cast<size_t>(i)];
    MUST(cuGraphNodeFindInClone, &copy, *node, rest);
    MUST(cuGraphDestroyNode, i < middle ? copy : *node);
    if (i >= middle) *node = copy;
  }
  divide(graph, nodes, from, middle, parts / 2, made);
  divide(rest, nodes, middle, to, parts / 2, made);
}

double timed(const std::vector<CUgraphExec>& execs, CUstream stream, double* caller_us) {
  CUevent begin, end;
  float ms = 0;
  D(cuEventCreate)(&begin, 0), D(cuEventCreate)(&end, 0);
  for (int round = 0; round < 2; ++round) {  // the first warms up
    D(cuEventRecord)(begin, stream);
    double start = now_ms();
    for (int i = 0; i < kLaunches; ++i)
      for (CUgraphExec exec : execs) MUST(cuGraphLaunch, exec, stream);
    *caller_us = (now_ms() - start) * 1e3 / kLaunches / static_cast<double>(execs.size());
    D(cuEventRecord)(end, stream);
    MUST(cuStreamSynchronize, stream);
    D(cuEventElapsedTime)(&ms, begin, end);
  }
  return static_cast<double>(ms) / kLaunches;
}

}  // namespace

int main() {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  CUgraph graph;
  void* word;
  MUST(cuInit, 0);
  MUST(cuDevicePrimaryCtxRetain, &context, 0);
  MUST(cuCtxSetCurrent, context);
  MUST(cuModuleLoadData, &module, kPtx);
  MUST(cuModuleGetFunction, &spin, module, "berth_spin");
  MUST(cuStreamCreate, &stream, 1);
  MUST(cuMemHostAlloc, &word, 4096, 0);
  MUST(cuStreamBeginCapture_v2, stream, 0);
  unsigned long long ns = 10000;
  void* arguments[] = {&ns};
  for (int i = 0; i < kNodes; ++i) MUST(cuLaunchKernel, spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  MUST(cuStreamEndCapture, stream, &graph);
  CUgraphExec whole;
  MUST(cuGraphInstantiateWithFlags, &whole, graph, 0);
  double whole_us = 0, whole_ms = timed({whole}, stream, &whole_us);
  std::printf("{\"parts\": 1, \"device_ms\": %.3f, \"caller_us_a_launch\": %.2f}\n", whole_ms, whole_us);

  auto* go = static_cast<std::atomic<uint32_t>*>(word);
  for (int parts : {2, 4, 8, 16, 32, 64}) {
    go->store(0);
    MUST(cuStreamWaitValue32_v2, stream, reinterpret_cast<CUdeviceptr>(word), 1, 0);
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      go->store(1);
    });
    size_t free_before = 0, free_after = 0, total;
    D(cuMemGetInfo_v2)(&free_before, &total);
    double begin = now_ms();
    CUgraph clone;
    size_t count = kNodes;
    std::vector<CUgraphNode> nodes(kNodes);
    MUST(cuGraphClone, &clone, graph);
    double cloned = now_ms();
    MUST(cuGraphGetNodes, clone, nodes.data(), &count);  // a captured chain is given in its order
    std::vector<Part> made;
    divide(clone, nodes, 0, kNodes, parts, &made);
    double divided = now_ms();
    for (Part& part : made) MUST(cuGraphInstantiateWithFlags, &part.exec, part.graph, 0);
    double instantiated = now_ms();
    for (Part& part : made) MUST(cuGraphUpload, part.exec, stream);
    double uploaded = now_ms();
    late.join();
    MUST(cuStreamSynchronize, stream);
    D(cuMemGetInfo_v2)(&free_after, &total);
    std::vector<CUgraphExec> execs;
    for (const Part& part : made) execs.push_back(part.exec);
    double caller_us = 0, device_ms = timed(execs, stream, &caller_us);
    std::printf(
        "{\"parts\": %zu, \"device_ms\": %.3f, \"more_us_a_part\": %.2f, \"caller_us_a_launch\": %.2f, \"clone_ms\": "
        "%.2f, "
        "\"divide_ms\": %.2f, \"instantiate_ms\": %.2f, \"upload_ms\": %.2f, \"device_kib\": %lld}\n",
        made.size(), device_ms, (device_ms - whole_ms) * 1e3 / static_cast<double>(made.size() - 1), caller_us,
        cloned - begin, divided - cloned, instantiated - divided, uploaded - instantiated,
        (static_cast<long long>(free_before) - static_cast<long long>(free_after)) / 1024);
    for (const Part& part : made) D(cuGraphExecDestroy)(part.exec), D(cuGraphDestroy)(part.graph);
  }
  return 0;
}
