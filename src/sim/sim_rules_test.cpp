// Rules of captures, sticky errors, and other behaviour in which an error code is the point.
#include <cstring>
#include <thread>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

class SimRules : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(use_card(), nullptr);
    kernel("berth_spin");
    CU(cuStreamCreate)(&a, 1);
    CU(cuStreamCreate)(&b, 1);
    CU(cuEventCreate)(&event, 2);
    CU(cuMemAlloc_v2)(&memory, 4096);
  }
  void TearDown() override {
    CU(cuStreamSynchronize)(nullptr);
    CU(cuStreamDestroy_v2)(a);
    CU(cuStreamDestroy_v2)(b);
    CU(cuEventDestroy_v2)(event);
    CU(cuMemFree_v2)(memory);
  }
  CUresult end(CUstream stream) {
    CUgraph graph = nullptr;
    CUresult result = CU(cuStreamEndCapture)(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
    if (graph) CU(cuGraphDestroy)(graph);
    return result;
  }
  CUstream a = nullptr, b = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
};

TEST_F(SimRules, TwoCapturesMayNotMerge) {
  CU(cuStreamBeginCapture_v2)(a, 0);
  CU(cuStreamBeginCapture_v2)(b, 0);
  CU(cuEventRecord)(event, a);
  EXPECT_EQ(CU(cuStreamWaitEvent)(b, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(end(a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(b), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimRules, ACaptureEndsWhereItBegan) {
  CU(cuStreamBeginCapture_v2)(a, 0);
  CU(cuEventRecord)(event, a);
  EXPECT_EQ(CU(cuStreamWaitEvent)(b, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(end(b), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimRules, ACaptureMayNotWaitForWorkOutside) {
  CU(cuEventRecord)(event, b);
  CU(cuStreamBeginCapture_v2)(a, 0);
  EXPECT_EQ(CU(cuStreamWaitEvent)(a, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimRules, TheLegacyStreamMayNotWaitForACapturedStream) {
  CUstream blocking;
  CU(cuStreamCreate)(&blocking, 0);
  CU(cuStreamBeginCapture_v2)(blocking, 2);
  EXPECT_EQ(CU(cuMemsetD8Async)(memory, 0, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CU(cuStreamDestroy_v2)(blocking);
}

TEST_F(SimRules, ACapturedEventHasNoCompletion) {
  CU(cuStreamBeginCapture_v2)(a, 2);
  CU(cuEventRecord)(event, a);
  EXPECT_EQ(CU(cuEventSynchronize)(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(end(a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimRules, OnlyARelaxedCaptureEndsInAnotherThread) {
  for (int mode : {0, 1, 2}) {
    CU(cuStreamBeginCapture_v2)(a, mode);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      use_card();
      result = end(a);
    }).join();
    EXPECT_EQ(result, mode == 2 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (mode != 2) {
      EXPECT_EQ(end(a), CUDA_SUCCESS);
    }
  }
}

TEST_F(SimRules, ARelaxedThreadMayDoUnsafeThings) {
  CU(cuStreamBeginCapture_v2)(a, 0);
  int mode = 2;
  EXPECT_EQ(CU(cuThreadExchangeStreamCaptureMode)(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, 0);
  CUdeviceptr p = 0;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, 4096), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFree_v2)(p), CUDA_SUCCESS);
  CU(cuThreadExchangeStreamCaptureMode)(&mode);
  EXPECT_EQ(end(a), CUDA_SUCCESS);
}

// What a wrong address does to a context, and that others of the process go on.
TEST_F(SimRules, AWrongAddressIsStickyInItsContext) {
  CUcontext primary, context;
  CU(cuCtxGetCurrent)(&primary);
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  CUmodule module;
  CUfunction function;
  CU(cuModuleLoadData)(&module, kPtx);
  CU(cuModuleGetFunction)(&function, module, "berth_fill");
  uint64_t nowhere = 0x1000, words = 4;
  uint32_t seed = 0;
  void* arguments[] = {&nowhere, &words, &seed};
  EXPECT_EQ(launch(function, nullptr, arguments), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr p;
  EXPECT_EQ(CU(cuMemAlloc_v2)(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launch(function, nullptr, arguments), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
  CUcontext current;
  CU(cuCtxGetCurrent)(&current);
  EXPECT_EQ(current, primary);
  EXPECT_EQ(fill(memory, 16, 1, a), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(a), CUDA_SUCCESS);
}

// A context that is destroyed takes a kernel along that would never end.
TEST_F(SimRules, AContextEndsWithItsSpinningKernel) {
  CUcontext context;
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  CUdeviceptr flag;
  CUmodule module;
  CUfunction function;
  uint32_t value = 1;
  CU(cuMemAlloc_v2)(&flag, 4);
  CU(cuMemsetD32_v2)(flag, 0, 1);
  CU(cuModuleLoadData)(&module, kPtx);
  CU(cuModuleGetFunction)(&function, module, "berth_wait");
  void* arguments[] = {&flag, &value};
  EXPECT_EQ(launch(function, nullptr, arguments), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
}

TEST_F(SimRules, HostFunctionsMayNotCallTheDriver) {
  CUresult seen = CUDA_SUCCESS;
  auto call = [](void* result) {
    CUdeviceptr p;
    *static_cast<CUresult*>(result) = CU(cuMemAlloc_v2)(&p, 4);
  };
  CU(cuLaunchHostFunc)(a, call, &seen);
  CU(cuStreamSynchronize)(a);
  EXPECT_EQ(seen, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(SimRules, CyclesAreNoGraphs) {
  CUgraph graph;
  CUgraphNode first, second;
  CUgraphExec exec;
  CU(cuGraphCreate)(&graph, 0);
  CU(cuGraphAddEmptyNode)(&first, graph, nullptr, 0);
  CU(cuGraphAddEmptyNode)(&second, graph, &first, 1);
  EXPECT_EQ(CU(cuGraphAddDependencies)(graph, &second, &first, 1), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  CU(cuGraphDestroy)(graph);
}

TEST_F(SimRules, ChildGraphsRunInTheirPlace) {
  CUgraph child, graph;
  CUgraphNode set, nested, last;
  CUgraphExec exec;
  CUcontext context;
  CU(cuCtxGetCurrent)(&context);
  CU(cuGraphCreate)(&child, 0);
  CU(cuGraphCreate)(&graph, 0);
  CUDA_MEMSET_NODE_PARAMS one{memory, 0, 1, 4, 4, 1}, two{memory + 4, 0, 2, 4, 1, 1};
  CU(cuGraphAddMemsetNode)(&set, child, nullptr, 0, &one, context);
  EXPECT_EQ(CU(cuGraphAddChildGraphNode)(&nested, graph, nullptr, 0, child), CUDA_SUCCESS);
  CU(cuGraphAddMemsetNode)(&last, graph, &nested, 1, &two, context);
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  CU(cuGraphLaunch)(exec, a);
  CU(cuStreamSynchronize)(a);
  uint32_t words[4];
  CU(cuMemcpyDtoH_v2)(words, memory, sizeof words);
  const uint32_t expected[] = {1, 2, 1, 1};
  EXPECT_EQ(std::memcmp(words, expected, sizeof words), 0);
  CU(cuGraphExecDestroy)(exec);
  CU(cuGraphDestroy)(graph);
  CU(cuGraphDestroy)(child);
}

TEST_F(SimRules, ExportTablesAreAlwaysTheSame) {
  CUuuid id;
  std::memcpy(id.bytes, "berth-sim-table1", 16);
  const void *first = nullptr, *second = nullptr;
  EXPECT_EQ(CU(cuGetExportTable)(&first, &id), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGetExportTable)(&second, &id), CUDA_SUCCESS);
  EXPECT_TRUE(first && first == second);
  id.bytes[0] = 'x';
  EXPECT_EQ(CU(cuGetExportTable)(&second, &id), CUDA_ERROR_NOT_FOUND);
}

TEST_F(SimRules, PoolsCountWhatTheyHave) {
  CUmemoryPool pool;
  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {1, 0};
  properties.maxSize = 64 * kMiB;
  ASSERT_EQ(CU(cuMemPoolCreate)(&pool, &properties), CUDA_SUCCESS);
  CUdeviceptr p, q;
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&p, 40 * kMiB, pool, a), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocFromPoolAsync)(&q, 40 * kMiB, pool, a), CUDA_ERROR_OUT_OF_MEMORY) << "beyond its largest size";
  uint64_t used = 0, reserved = 0;
  CU(cuMemPoolGetAttribute)(pool, 7, &used);
  CU(cuMemPoolGetAttribute)(pool, 5, &reserved);
  EXPECT_EQ(used, 40 * kMiB);
  EXPECT_EQ(reserved, 64 * kMiB);
  CU(cuMemFreeAsync)(p, a);
  CU(cuStreamSynchronize)(a);
  CU(cuMemPoolDestroy)(pool);
}

}  // namespace
}  // namespace berth::sim
