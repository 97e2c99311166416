// Contract: contexts, streams, events, capture, graphs, launches, copies, looking up functions.
#include "sections.h"

#include <thread>

namespace contract {
namespace {

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

}  // namespace

void contexts() {
  D(cuInit)(0);
  CUcontext primary, again, own, current;
  unsigned flags;
  int active;
  CALL(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  VALUE("active", active);
  CALL(cuDevicePrimaryCtxRetain, &primary, 0);
  CALL(cuDevicePrimaryCtxRetain, &again, 0);
  VALUE("same", primary == again);
  CALL(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  VALUE("active", active);
  CALL(cuCtxPushCurrent_v2, primary);
  CUdeviceptr p;
  CALL(cuMemAlloc_v2, &p, 4 << 20);
  CALL(cuDevicePrimaryCtxRelease_v2, 0);
  CALLED("one retain left", cuMemsetD8_v2, p, 0, 16);
  CALL(cuCtxCreate_v2, &own, 0, 0);
  CALL(cuCtxGetCurrent, &current);
  VALUE("created is current", current == own);
  CUdevice device = -1;
  CALL(cuCtxGetDevice, &device);
  VALUE("device", device);
  unsigned version = 0;
  CALL(cuCtxGetApiVersion, own, &version);
  CALLED("of another context", cuMemFree_v2, p);
  CALL(cuCtxPopCurrent_v2, &current);
  VALUE("popped own", current == own);
  CALL(cuCtxGetCurrent, &current);
  VALUE("primary below", current == primary);
  CALL(cuCtxDestroy_v2, own);
  CALLED("destroyed", cuCtxSetCurrent, own);
  CALLED("primary", cuCtxDestroy_v2, primary);
  CALL(cuMemAlloc_v2, &p, 4 << 20);
  CALL(cuDevicePrimaryCtxReset_v2, 0);
  CALL(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  VALUE("active", active);
  CALLED("after reset", cuMemFree_v2, p);
  CALLED("after reset", cuMemAlloc_v2, &p, 4 << 20);
  CALL(cuDevicePrimaryCtxRelease_v2, 0);
  CALLED("once too often", cuDevicePrimaryCtxRelease_v2, 0);
  std::thread([] {
    CUcontext none = reinterpret_cast<CUcontext>(1);
    D(cuCtxGetCurrent)(&none);
    VALUE("another thread has a context", none != nullptr);
  }).join();
}

void streams() {
  start();
  CUstream a, b;
  CUevent e, f;
  CALL(cuStreamCreate, &a, 0);
  CALLED("flags 77", cuStreamCreate, &b, 77);
  CALL(cuStreamCreateWithPriority, &b, 1, -1);
  int priority = 9;
  CALL(cuStreamGetPriority, b, &priority);
  VALUE("priority", priority);
  unsigned flags = 9;
  CALL(cuStreamGetFlags, b, &flags);
  VALUE("flags", flags);
  CALL(cuStreamQuery, a);
  CALL(cuEventCreate, &e, 0);
  CALL(cuEventCreate, &f, 2);
  CALLED("not recorded", cuEventQuery, e);
  CALLED("not recorded", cuEventSynchronize, e);
  CALL(cuEventRecord, e, a);
  CALL(cuStreamWaitEvent, b, e, 0);
  CALL(cuEventRecord, f, b);
  CALL(cuStreamSynchronize, b);
  CALL(cuEventQuery, e);
  float ms;
  CALLED("without timing", cuEventElapsedTime, &ms, e, f);
  static int order = 0;
  CALL(cuLaunchHostFunc, a, [](void* seen) { *static_cast<int*>(seen) = 1; }, &order);
  CALL(cuStreamSynchronize, a);
  VALUE("host function ran", order);
  CALL(cuStreamDestroy_v2, a);
  CALL(cuEventDestroy_v2, e);
  CALLED("null", cuStreamSynchronize, nullptr);
  CALLED("per-thread", cuStreamSynchronize, reinterpret_cast<CUstream>(2));
  CALLED("legacy", cuStreamSynchronize, reinterpret_cast<CUstream>(1));
  CALLED("null", cuEventDestroy_v2, nullptr);
  CUdeviceptr word;
  D(cuMemAlloc_v2)(&word, 4096);
  D(cuMemsetD32_v2)(word, 0, 16);
  CALL(cuStreamWriteValue32_v2, b, word, 5, 0);
  CALL(cuStreamWaitValue32_v2, b, word, 5, 0);
  CALL(cuStreamSynchronize, b);
  unsigned value = 0;
  CALL(cuMemcpyDtoH_v2, &value, word, 4);
  VALUE("written", value);
}

void captures() {
  start();
  CUstream stream, other;
  D(cuStreamCreate)(&stream, 1);
  D(cuStreamCreate)(&other, 1);
  CUdeviceptr p, q;
  D(cuMemAlloc_v2)(&p, 1 << 20);
  CUgraph graph;
  CUevent event;
  D(cuEventCreate)(&event, 2);
  static const char* const kModes[] = {"global", "thread local", "relaxed"};
  for (int mode = 0; mode < 3; ++mode) {
    std::printf("mode %s\n", kModes[mode]);
    auto attempt = [&](const char* what, auto call) {
      CUresult began = D(cuStreamBeginCapture_v2)(stream, mode);
      D(cuMemsetD8Async)(p, 1, 64, stream);
      CUresult result = call();
      CUgraph made = nullptr;
      CUresult ended = D(cuStreamEndCapture)(stream, &made);
      std::printf("%s: begin %d, call %d, end %d, graph %d\n", what, began, result, ended, made != nullptr);
      if (made) D(cuGraphDestroy)(made);
    };
    attempt("cuMemAlloc", [&] { CUresult r = D(cuMemAlloc_v2)(&q, 1 << 20); if (!r) D(cuMemFree_v2)(q); return r; });
    attempt("cuMemAlloc on another thread", [&] {
      CUresult r;
      CUcontext context;
      D(cuCtxGetCurrent)(&context);
      std::thread([&] { D(cuCtxSetCurrent)(context); r = D(cuMemAlloc_v2)(&q, 1 << 20); if (!r) D(cuMemFree_v2)(q); }).join();
      return r;
    });
    attempt("cuMemAllocAsync", [&] { return D(cuMemAllocAsync)(&q, 1 << 20, stream); });
    attempt("cuMemGetInfo", [&] { size_t a, b; return D(cuMemGetInfo_v2)(&a, &b); });
    attempt("cuMemPoolGetAttribute", [&] {
      CUmemoryPool pool;
      uint64_t value;
      D(cuDeviceGetDefaultMemPool)(&pool, 0);
      return D(cuMemPoolGetAttribute)(pool, 5, &value);
    });
    attempt("cuMemCreate", [&] {
      CUmemAllocationProp properties{};
      properties.type = 1;
      properties.location = {1, 0};
      CUmemGenericAllocationHandle handle;
      CUresult r = D(cuMemCreate)(&handle, 2 << 20, &properties, 0);
      if (!r) D(cuMemRelease)(handle);
      return r;
    });
    attempt("cuStreamSynchronize of the stream", [&] { return D(cuStreamSynchronize)(stream); });
    attempt("cuStreamSynchronize of another", [&] { return D(cuStreamSynchronize)(other); });
    attempt("cuStreamQuery of the stream", [&] { return D(cuStreamQuery)(stream); });
    attempt("cuCtxSynchronize", [&] { return D(cuCtxSynchronize)(); });
    attempt("cuMemcpyHtoD", [&] { int v = 1; return D(cuMemcpyHtoD_v2)(p, &v, 4); });
    attempt("cuMemcpyHtoDAsync on another stream", [&] { static int v = 1; return D(cuMemcpyHtoDAsync_v2)(p, &v, 4, other); });
    attempt("cuEventQuery", [&] { return D(cuEventQuery)(event); });
    attempt("cuStreamIsCapturing", [&] { int s; return D(cuStreamIsCapturing)(stream, &s); });
    attempt("cuStreamCreate", [&] { CUstream s; CUresult r = D(cuStreamCreate)(&s, 1); if (!r) D(cuStreamDestroy_v2)(s); return r; });
    attempt("cuEventRecord and wait on another", [&] {
      D(cuEventRecord)(event, stream);
      D(cuStreamWaitEvent)(other, event, 0);
      D(cuMemsetD8Async)(p, 1, 64, other);
      return CUDA_SUCCESS;  // never joined
    });
    D(cuStreamDestroy_v2)(other);
    D(cuStreamCreate)(&other, 1);
    D(cuEventDestroy_v2)(event);
    D(cuEventCreate)(&event, 2);
    CALLED("not capturing", cuStreamEndCapture, stream, &graph);
    CALLED("legacy stream", cuStreamBeginCapture_v2, nullptr, mode);
  }
}

void graphs() {
  start();
  CUgraph graph, made;
  CUgraphExec exec;
  CUstream stream;
  CUdeviceptr p;
  D(cuStreamCreate)(&stream, 1);
  D(cuMemAlloc_v2)(&p, 4096);
  CALL(cuGraphCreate, &graph, 0);
  CUgraphNode empty, set;
  CALL(cuGraphAddEmptyNode, &empty, graph, nullptr, 0);
  CUDA_MEMSET_NODE_PARAMS memset{p, 0, 9, 1, 64, 1};
  CUcontext context;
  D(cuCtxGetCurrent)(&context);
  CALL(cuGraphAddMemsetNode, &set, graph, &empty, 1, &memset, context);
  size_t count = 0;
  CALL(cuGraphGetNodes, graph, nullptr, &count);
  VALUE("nodes", count);
  int type = -1;
  CALL(cuGraphNodeGetType, set, &type);
  VALUE("type", type);
  CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
  CALL(cuGraphLaunch, exec, stream);
  CALL(cuStreamSynchronize, stream);
  unsigned char byte = 0;
  D(cuMemcpyDtoH_v2)(&byte, p + 63, 1);
  VALUE("set", byte);
  CALL(cuStreamBeginCapture_v2, stream, 0);
  CALL(cuMemsetD8Async, p, 5, 32, stream);
  int status = 9;
  CALL(cuStreamIsCapturing, stream, &status);
  VALUE("status", status);
  CALL(cuStreamEndCapture, stream, &made);
  D(cuMemcpyDtoH_v2)(&byte, p, 1);
  VALUE("captured, not run", byte);
  CALL(cuGraphGetNodes, made, nullptr, &count);
  VALUE("nodes", count);
  CUgraphExec exec2;
  CALL(cuGraphInstantiateWithFlags, &exec2, made, 0);
  CALL(cuGraphLaunch, exec2, stream);
  CALL(cuGraphLaunch, exec2, stream);
  CALL(cuStreamSynchronize, stream);
  D(cuMemcpyDtoH_v2)(&byte, p, 1);
  VALUE("run", byte);
  CALL(cuGraphDestroy, made);
  CALL(cuGraphExecDestroy, exec2);
  CALL(cuGraphExecDestroy, exec);
  CALL(cuGraphDestroy, graph);
}

void graph_memory() {
  start();
  CUgraph graph;
  CUstream stream;
  D(cuGraphCreate)(&graph, 0);
  D(cuStreamCreate)(&stream, 1);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = 1;
  params.poolProps.location = {1, 0};
  params.bytesize = 48 << 20;
  CUgraphNode alloc, set, release;
  auto reserved = [] {
    uint64_t value = 0;
    D(cuDeviceGetGraphMemAttribute)(0, 2, &value);
    return value >> 20;
  };
  CALL(cuGraphAddMemAllocNode, &alloc, graph, nullptr, 0, &params);
  CUcontext context;
  D(cuCtxGetCurrent)(&context);
  CUDA_MEMSET_NODE_PARAMS memset{params.dptr, 0, 9, 1, 64, 1};
  CALL(cuGraphAddMemsetNode, &set, graph, &alloc, 1, &memset, context);
  CALL(cuGraphAddMemFreeNode, &release, graph, &set, 1, params.dptr);
  VALUE("reserved MiB", reserved());
  CUgraphExec exec;
  CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
  VALUE("reserved MiB after instantiation", reserved());
  CALL(cuGraphUpload, exec, stream);
  CALL(cuStreamSynchronize, stream);
  VALUE("reserved MiB after upload", reserved());
  CALL(cuGraphLaunch, exec, stream);
  CALL(cuStreamSynchronize, stream);
  VALUE("reserved MiB after launch", reserved());
  CALL(cuGraphExecDestroy, exec);
  VALUE("reserved MiB after destroy", reserved());
  CALL(cuDeviceGraphMemTrim, 0);
  VALUE("reserved MiB after trim", reserved());
}

void launches() {
  start();
  CUmodule module;
  CUfunction function;
  CALLED("not an image", cuModuleLoadData, &module, "hello");
  CALL(cuModuleLoadData, &module, kPtx);
  CALLED("no such kernel", cuModuleGetFunction, &function, module, "no_such_kernel");
  CALL(cuModuleGetFunction, &function, module, "berth_spin");
  unsigned long long ns = 1000;
  void* args[] = {&ns};
  CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr);
  CALLED("no threads", cuLaunchKernel, function, 1, 1, 1, 0, 1, 1, 0, nullptr, args, nullptr);
  CALLED("too many threads", cuLaunchKernel, function, 1, 1, 1, 2048, 1, 1, 0, nullptr, args, nullptr);
  CALLED("no function", cuLaunchKernel, nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr);
  CALL(cuLaunchCooperativeKernel, function, 1, 1, 1, 1, 1, 1, 0, nullptr, args);
  CUlaunchAttribute attribute{};
  attribute.id = 2;  // cooperative
  attribute.value[0] = 1;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  CALL(cuLaunchKernelEx, &config, function, args, nullptr);
  size_t size = sizeof ns;
  void* extra[] = {reinterpret_cast<void*>(1), &ns, reinterpret_cast<void*>(2), &size, nullptr};
  CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
  CALL(cuCtxSynchronize);
  CALL(cuModuleUnload, module);
}

void copies() {
  start();
  CUdeviceptr a, b;
  D(cuMemAlloc_v2)(&a, 1 << 20);
  D(cuMemAlloc_v2)(&b, 1 << 20);
  unsigned char host[256], back[256] = {};
  for (int i = 0; i < 256; ++i) host[i] = static_cast<unsigned char>(i);
  CALL(cuMemcpyHtoD_v2, a, host, 256);
  CALL(cuMemcpyDtoD_v2, b, a, 256);
  CALL(cuMemcpyDtoH_v2, back, b, 256);
  VALUE("equal", std::memcmp(host, back, 256) == 0);
  CALL(cuMemsetD16_v2, a, 0x1234, 100);
  CALL(cuMemsetD32_v2, b, 0xdeadbeef, 10);
  CALL(cuMemcpy, b, a, 64);
  CUDA_MEMCPY2D two{};
  two.srcMemoryType = 2, two.srcDevice = a, two.srcPitch = 32;
  two.dstMemoryType = 1, two.dstHost = back, two.dstPitch = 16;
  two.WidthInBytes = 16, two.Height = 4;
  CALL(cuMemcpy2D_v2, &two);
  VALUE("row 3", back[48] | back[49] << 8);
  CALLED("zero bytes", cuMemcpyDtoH_v2, back, a, 0);
  CALLED("null", cuMemcpyHtoD_v2, 0, host, 16);
  CALLED("past the end", cuMemcpyDtoH_v2, back, a + (1 << 20), 16);
  void* pinned;
  CALL(cuMemHostAlloc, &pinned, 4096, 0);
  CUdeviceptr mapped;
  CALL(cuMemHostGetDevicePointer_v2, &mapped, pinned, 0);
  VALUE("unified", reinterpret_cast<CUdeviceptr>(pinned) == mapped);
  CALL(cuMemFreeHost, pinned);
  CALLED("not pinned", cuMemFreeHost, host);
  unsigned type = 0;
  CALL(cuPointerGetAttribute, &type, 2, a);
  VALUE("memory type", type);
  CALLED("not ours", cuPointerGetAttribute, &type, 2, reinterpret_cast<CUdeviceptr>(host));
}

// cuGetProcAddress before and after cuInit: codes and states, not addresses (tests/contract/proc_address records those).
void lookups() {
  void* pointer;
  CUdriverProcAddressQueryResult status;
  auto look = [&](const char* name, int version, uint64_t flags) {
    pointer = reinterpret_cast<void*>(1);
    status = 9;
    CUresult result = D(cuGetProcAddress_v2)(name, &pointer, version, flags, &status);
    std::printf("%s %d %llu -> %d, %s, status %d\n", name ? name : "null", version, static_cast<unsigned long long>(flags), result,
                pointer == reinterpret_cast<void*>(1) ? "untouched" : pointer ? "found" : "null", status);
  };
  look("cuInit", 13000, 0);
  look("cuMemAlloc", 13000, 0);
  D(cuInit)(0);
  look("cuMemAlloc", 13000, 0);
  look("cuMemAlloc", 3020, 0);
  look("cuMemAlloc", 2000, 0);
  look("cuMemAlloc", 1000, 0);
  look("cuMemAllocAsync", 11000, 0);
  look("cuMemAllocAsync", 11020, 2);
  look("cuNoSuchFunction", 13000, 0);
  look("cuMemAlloc_v2", 13000, 0);
  look("", 13000, 0);
  look("cuMemAlloc", 99000, 0);
  look("cuMemAlloc", 13000, 1);
  look("cuMemAlloc", 13000, 3);
  look("cuMemAlloc", 13000, 4);
  CALLED("null status", cuGetProcAddress_v2, "cuInit", &pointer, 13000, 0, nullptr);
  CALLED("first form", cuGetProcAddress, "cuInit", &pointer, 11030, 0);
  CALLED("first form", cuGetProcAddress, "cuNoSuchFunction", &pointer, 11030, 0);
  const char* text = nullptr;
  CALL(cuGetErrorName, CUDA_ERROR_OUT_OF_MEMORY, &text);
  std::printf("%s\n", text);
  CALLED("no such error", cuGetErrorName, static_cast<CUresult>(12345), &text);
}

}  // namespace contract
