// The simulated driver within one process.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

class Sim : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(use_card(), nullptr);
    ASSERT_EQ(CU(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
    kernel("berth_spin");  // the module's memory is not a test's affair
    before = free_bytes();
  }
  void TearDown() override {
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CU(cuStreamDestroy_v2)(stream);
    EXPECT_EQ(free_bytes(), before) << "memory is left";
  }
  CUstream stream = nullptr;
  size_t before = 0;
};

TEST_F(Sim, KernelsCompute) {
  CUdeviceptr data;
  constexpr uint64_t kWords = 3'000'000;
  ASSERT_EQ(CU(cuMemAlloc_v2)(&data, kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(fill(data, kWords, 7, stream), CUDA_SUCCESS);
  EXPECT_EQ(errors_in(data, kWords, 7, stream), 0u);
  EXPECT_EQ(errors_in(data, kWords, 8, stream), kWords);
  CU(cuMemsetD32_v2)(data + 400, 0, 1);
  EXPECT_EQ(errors_in(data, kWords, 7, stream), 1u);
  uint32_t word = 0, x = 1u * 2654435761u ^ 7;
  x ^= x >> 16, x *= 0x45d9f3bu, x ^= x >> 16;
  CU(cuMemcpyDtoH_v2)(&word, data + 4, 4);
  EXPECT_EQ(word, x);
  CU(cuMemFree_v2)(data);
}

TEST_F(Sim, AxpyAddsScaled) {
  float x[] = {1, 2, 3}, y[] = {10, 20, 30}, a = 2;
  CUdeviceptr dx, dy;
  uint64_t n = 3;
  CU(cuMemAlloc_v2)(&dx, sizeof x), CU(cuMemAlloc_v2)(&dy, sizeof y);
  CU(cuMemcpyHtoD_v2)(dx, x, sizeof x), CU(cuMemcpyHtoD_v2)(dy, y, sizeof y);
  void* arguments[] = {&dy, &dx, &a, &n};
  EXPECT_EQ(launch(kernel("berth_axpy"), nullptr, arguments), CUDA_SUCCESS);
  CU(cuMemcpyDtoH_v2)(y, dy, sizeof y);
  EXPECT_EQ(y[0], 12);
  EXPECT_EQ(y[2], 36);
  CU(cuMemFree_v2)(dx), CU(cuMemFree_v2)(dy);
}

TEST_F(Sim, ASpinningKernelBlocksNobodyElse) {
  CUdeviceptr flag;
  CUstream other;
  CU(cuMemAlloc_v2)(&flag, 4), CU(cuStreamCreate)(&other, 1);
  CU(cuMemsetD32_v2)(flag, 0, 1);
  ASSERT_EQ(wait_word(flag, 5, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(spin(100000, other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(CU(cuStreamWriteValue32_v2)(other, flag, 5, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  CU(cuStreamDestroy_v2)(other), CU(cuMemFree_v2)(flag);
}

TEST_F(Sim, EventsOrderStreamsAndMeasure) {
  CUstream other;
  CUevent start, end;
  CU(cuStreamCreate)(&other, 1), CU(cuEventCreate)(&start, 0), CU(cuEventCreate)(&end, 0);
  CU(cuEventRecord)(start, stream);
  EXPECT_EQ(spin(3'000'000, stream), CUDA_SUCCESS);
  CU(cuEventRecord)(end, stream);
  EXPECT_EQ(CU(cuEventQuery)(end), CUDA_ERROR_NOT_READY);
  CU(cuStreamWaitEvent)(other, end, 0);
  EXPECT_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuEventQuery)(end), CUDA_SUCCESS);
  float ms = 0;
  EXPECT_EQ(CU(cuEventElapsedTime)(&ms, start, end), CUDA_SUCCESS);
  EXPECT_GE(ms, 2.9f);
  EXPECT_LT(ms, 30.f);
  CU(cuEventDestroy_v2)(start), CU(cuEventDestroy_v2)(end), CU(cuStreamDestroy_v2)(other);
}

// Work in the null stream comes after all of a blocking stream and before what that stream gets later; not so for
// others.
TEST_F(Sim, TheLegacyStreamWaitsForBlockingStreams) {
  CUstream blocking;
  CUdeviceptr flag;
  CU(cuStreamCreate)(&blocking, 0), CU(cuMemAlloc_v2)(&flag, 8);
  CU(cuMemsetD32_v2)(flag, 0, 2);
  CU(cuCtxSynchronize)();
  wait_word(flag, 1, blocking);
  CU(cuMemsetD32Async)(flag + 4, 9, 1, nullptr);
  EXPECT_EQ(CU(cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
  uint32_t word = 1;
  CU(cuMemcpyDtoHAsync_v2)(&word, flag + 4, 4, stream);
  CU(cuStreamSynchronize)(stream);
  EXPECT_EQ(word, 0u) << "the null stream did not wait";
  CU(cuStreamWriteValue32_v2)(stream, flag, 1, 0);
  EXPECT_EQ(CU(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  CU(cuMemcpyDtoH_v2)(&word, flag + 4, 4);
  EXPECT_EQ(word, 9u);
  CU(cuStreamDestroy_v2)(blocking), CU(cuMemFree_v2)(flag);
}

TEST_F(Sim, FlavoursMeanDifferentStreams) {
  CUdeviceptr p;
  CU(cuMemAlloc_v2)(&p, 64);
  auto last =
      reinterpret_cast<decltype(&berth_sim_last_stream)>(find_export(library(SIM_CUDA_PATH), "berth_sim_last_stream"));
  CU(cuMemsetD8Async)(p, 0, 64, nullptr);
  EXPECT_EQ(last(), nullptr);
  CU(cuMemsetD8Async_ptsz)(p, 0, 64, nullptr);
  EXPECT_EQ(last(), reinterpret_cast<void*>(2));
  CU(cuMemsetD8Async)(p, 0, 64, stream);
  EXPECT_EQ(last(), stream);
  uint64_t here = 0, there = 0;
  CU(cuStreamGetId_ptsz)(nullptr, &here);
  std::thread([&] {
    use_card();
    CU(cuStreamGetId_ptsz)(nullptr, &there);
  }).join();
  EXPECT_NE(here, there);
  CU(cuCtxSynchronize)(), CU(cuMemFree_v2)(p);
}

TEST_F(Sim, HostFunctionsRunInOrderAndOffTheEngine) {
  struct Shared {
    std::atomic<int> step{0};
    CUdeviceptr flag = 0;
  } shared;
  CU(cuMemAlloc_v2)(&shared.flag, 4), CU(cuMemsetD32_v2)(shared.flag, 0, 1), CU(cuCtxSynchronize)();
  CUstream other;
  CU(cuStreamCreate)(&other, 1);
  // The function waits until the other stream has gone on: a single engine thread must not be held up by it.
  auto wait = [](void* data) {
    auto* s = static_cast<Shared*>(data);
    while (*reinterpret_cast<std::atomic<uint32_t>*>(s->flag) != 3) std::this_thread::yield();
    s->step = 1;
  };
  EXPECT_EQ(CU(cuLaunchHostFunc)(stream, wait, &shared), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemsetD32Async)(shared.flag, 3, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(shared.step, 1);
  CU(cuStreamDestroy_v2)(other), CU(cuMemFree_v2)(shared.flag);
}

TEST_F(Sim, PageableSourcesMayChangeAfterTheCall) {
  CUdeviceptr p, flag;
  CU(cuMemAlloc_v2)(&p, 4), CU(cuMemAlloc_v2)(&flag, 4), CU(cuMemsetD32_v2)(flag, 0, 1), CU(cuCtxSynchronize)();
  wait_word(flag, 1, stream);
  uint32_t value = 11, back = 0;
  EXPECT_EQ(CU(cuMemcpyHtoDAsync_v2)(p, &value, 4, stream), CUDA_SUCCESS);
  value = 12;
  CUstream other;
  CU(cuStreamCreate)(&other, 1);
  CU(cuStreamWriteValue32_v2)(other, flag, 1, 0);
  CU(cuStreamSynchronize)(stream);
  CU(cuMemcpyDtoH_v2)(&back, p, 4);
  EXPECT_EQ(back, 11u);
  CU(cuStreamDestroy_v2)(other), CU(cuMemFree_v2)(p), CU(cuMemFree_v2)(flag);
}

TEST_F(Sim, PoolsReuseWithinAStreamAndGiveBackAtASynchronisation) {
  CUdeviceptr first, second;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(CU(cuMemAllocAsync)(&first, 100 * kMiB, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemFreeAsync)(first, stream), CUDA_SUCCESS);
    ASSERT_LE(before - free_bytes(), 256 * kMiB);
  }
  CU(cuStreamSynchronize)(stream);
  EXPECT_EQ(free_bytes(), before);
  // The pool grows by what its blocks need together, in steps of 32 MiB.
  CU(cuMemAllocAsync)(&first, kMiB, stream), CU(cuMemAllocAsync)(&second, 100 * kMiB, stream);
  EXPECT_EQ(before - free_bytes(), 128 * kMiB);
  CU(cuMemFreeAsync)(first, stream), CU(cuMemFreeAsync)(second, stream);
  CU(cuStreamSynchronize)(stream);
}

TEST_F(Sim, MappedMemoryIsOneBehindTwoAddresses) {
  CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
  CUmemAccessDesc access{{1, 0}, 3};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr range;
  ASSERT_EQ(CU(cuMemCreate)(&handle, 4 * kMiB, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemAddressReserve)(&range, 8 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemMap)(range, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemMap)(range + 4 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemsetD32_v2)(range, 1, 1), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  ASSERT_EQ(CU(cuMemSetAccess)(range, 8 * kMiB, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(fill(range, kMiB, 3, stream), CUDA_SUCCESS);
  EXPECT_EQ(errors_in(range + 4 * kMiB, kMiB, 3, stream), 0u);
  EXPECT_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemUnmap)(range, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAddressFree)(range, 8 * kMiB), CUDA_SUCCESS);
}

TEST_F(Sim, ManagedMemoryCountsWhenTheDeviceTouchesIt) {
  CUdeviceptr p;
  ASSERT_EQ(CU(cuMemAllocManaged)(&p, 8 * kMiB, 1), CUDA_SUCCESS);
  *reinterpret_cast<int*>(p) = 5;
  EXPECT_EQ(free_bytes(), before);
  CU(cuMemsetD8_v2)(p + 4, 1, 4), CU(cuCtxSynchronize)();
  EXPECT_EQ(before - free_bytes(), 8 * kMiB);
  EXPECT_EQ(*reinterpret_cast<int*>(p), 5);
  CU(cuMemFree_v2)(p);
}

TEST_F(Sim, ArraysKeepRows) {
  CUDA_ARRAY_DESCRIPTOR description{8, 4, 0x20, 1};
  CUarray array;
  ASSERT_EQ(CU(cuArrayCreate_v2)(&array, &description), CUDA_SUCCESS);
  float in[4][8], out[4][8] = {};
  for (int i = 0; i < 32; ++i) in[i / 8][i % 8] = static_cast<float>(i);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = 1, copy.srcHost = in, copy.srcPitch = 32, copy.dstMemoryType = 3, copy.dstArray = array;
  copy.WidthInBytes = 32, copy.Height = 4;
  EXPECT_EQ(CU(cuMemcpy2D_v2)(&copy), CUDA_SUCCESS);
  copy = {};
  copy.srcMemoryType = 3, copy.srcArray = array, copy.srcXInBytes = 16, copy.srcY = 1;
  copy.dstMemoryType = 1, copy.dstHost = out, copy.dstPitch = 32, copy.WidthInBytes = 16, copy.Height = 2;
  EXPECT_EQ(CU(cuMemcpy2D_v2)(&copy), CUDA_SUCCESS);
  EXPECT_EQ(out[0][0], 12);
  EXPECT_EQ(out[1][3], 23);
  copy.srcY = 3;
  EXPECT_EQ(CU(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE) << "beyond the last row";
  CU(cuArrayDestroy)(array);
}

TEST_F(Sim, GraphsRunTheirNodesInOrderAndUpdate) {
  CUdeviceptr data;
  CU(cuMemAlloc_v2)(&data, 4096);
  auto capture = [&](uint32_t seed) {
    CUgraph graph = nullptr;
    CUstream side;
    CUevent fork, join;
    CU(cuStreamCreate)(&side, 1), CU(cuEventCreate)(&fork, 2), CU(cuEventCreate)(&join, 2);
    EXPECT_EQ(CU(cuStreamBeginCapture_v2)(stream, 0), CUDA_SUCCESS);
    CU(cuMemsetD32Async)(data, 0, 1024, stream);
    CU(cuEventRecord)(fork, stream), CU(cuStreamWaitEvent)(side, fork, 0);
    EXPECT_EQ(fill(data, 512, seed, stream), CUDA_SUCCESS);
    EXPECT_EQ(fill(data + 2048, 512, seed + 1, side), CUDA_SUCCESS);
    CU(cuEventRecord)(join, side), CU(cuStreamWaitEvent)(stream, join, 0);
    EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CU(cuEventDestroy_v2)(fork), CU(cuEventDestroy_v2)(join), CU(cuStreamDestroy_v2)(side);
    return graph;
  };
  CUgraph graph = capture(1), other = capture(5);
  size_t nodes = 0, edges = 0;
  CU(cuGraphGetNodes)(graph, nullptr, &nodes), CU(cuGraphGetEdges)(graph, nullptr, nullptr, &edges);
  EXPECT_EQ(nodes, 3u);
  EXPECT_EQ(edges, 2u);
  CUgraphExec exec;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(errors_in(data, 512, 1, stream) + errors_in(data + 2048, 512, 2, stream), 0u);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(CU(cuGraphExecUpdate_v2)(exec, other, &info), CUDA_SUCCESS);
  CU(cuGraphLaunch)(exec, stream);
  EXPECT_EQ(errors_in(data, 512, 5, stream) + errors_in(data + 2048, 512, 6, stream), 0u);
  CU(cuGraphExecDestroy)(exec), CU(cuGraphDestroy)(graph), CU(cuGraphDestroy)(other), CU(cuMemFree_v2)(data);
  before -= 2 * kMiB;  // recorded: the first launch of a graph takes 2 MiB that stay
}

TEST_F(Sim, GraphMemoryIsReservedInStepsAndStaysUntilTrimmed) {
  CUgraph graph = nullptr;
  CUdeviceptr inside = 0;
  EXPECT_EQ(CU(cuStreamBeginCapture_v2)(stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&inside, 48 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(fill(inside, kMiB, 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(inside, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  uint64_t reserved = 0, used = 1;
  CU(cuDeviceGetGraphMemAttribute)(0, 2, &reserved), CU(cuDeviceGetGraphMemAttribute)(0, 0, &used);
  EXPECT_EQ(reserved, 64 * kMiB);
  EXPECT_EQ(used, 0u);
  CU(cuGraphExecDestroy)(exec), CU(cuGraphDestroy)(graph), CU(cuDeviceGraphMemTrim)(0);
  CU(cuDeviceGetGraphMemAttribute)(0, 2, &reserved);
  EXPECT_EQ(reserved, 0u);
}

// An allocation that outlives its graph is freed like any other.
TEST_F(Sim, GraphAllocationsCanBeFreedOutside) {
  CUgraph graph;
  CUgraphNode node;
  CU(cuGraphCreate)(&graph, 0);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = 1, params.poolProps.location = {1, 0}, params.bytesize = 4 * kMiB;
  ASSERT_EQ(CU(cuGraphAddMemAllocNode)(&node, graph, nullptr, 0, &params), CUDA_SUCCESS);
  CUgraphExec exec;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_VALUE) << "still allocated";
  EXPECT_EQ(fill(params.dptr, kMiB, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(errors_in(params.dptr, kMiB, 1, stream), 0u);
  EXPECT_EQ(CU(cuMemFree_v2)(params.dptr), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(params.dptr, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  CU(cuGraphExecDestroy)(exec), CU(cuGraphDestroy)(graph), CU(cuDeviceGraphMemTrim)(0);
}

TEST_F(Sim, AGraphOfTenThousandNodesRuns) {
  CUdeviceptr p;
  CUgraph graph = nullptr;
  CUgraphExec exec;
  CU(cuMemAlloc_v2)(&p, 4);
  CU(cuStreamBeginCapture_v2)(stream, 0);
  for (uint32_t i = 0; i < 10000; ++i) CU(cuMemsetD32Async)(p, i, 1, stream);
  EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  uint32_t last = 0;
  CU(cuStreamSynchronize)(stream), CU(cuMemcpyDtoH_v2)(&last, p, 4);
  EXPECT_EQ(last, 9999u);
  CU(cuGraphExecDestroy)(exec), CU(cuGraphDestroy)(graph), CU(cuMemFree_v2)(p);
}

TEST_F(Sim, StackLimitCostsMemoryForEveryThread) {
  CUcontext context;
  ASSERT_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  size_t with_context = free_bytes();
  EXPECT_EQ(before - with_context, 518 * kMiB);
  EXPECT_EQ(CU(cuCtxSetLimit)(0, 2048), CUDA_SUCCESS);
  EXPECT_EQ(with_context - free_bytes(), (1024 * 132 * 2048 + 2 * kMiB - 1) / (2 * kMiB) * 2 * kMiB);
  EXPECT_EQ(CU(cuCtxSetLimit)(0, 65536), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
}

TEST_F(Sim, LaunchAttributesArriveUnchanged) {
  CUlaunchAttribute attributes[2] = {{99, {1, 2, 3, 4}, {5, 6, 7}}, {2, {}, {1}}};
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, attributes, 2};
  uint64_t ns = 0;
  void* arguments[] = {&ns};
  EXPECT_EQ(CU(cuLaunchKernelEx)(&config, kernel("berth_spin"), arguments, nullptr), CUDA_SUCCESS);
  char seen[sizeof attributes] = {};
  reinterpret_cast<decltype(&berth_sim_last_attributes)>(
      find_export(library(SIM_CUDA_PATH), "berth_sim_last_attributes"))(seen, sizeof seen);
  EXPECT_EQ(std::memcmp(seen, attributes, sizeof seen), 0);
}

TEST_F(Sim, CallsAreCounted) {
  auto calls = reinterpret_cast<decltype(&berth_sim_calls)>(find_export(library(SIM_CUDA_PATH), "berth_sim_calls"));
  uint64_t counted = calls("cuMemGetInfo_v2");
  free_bytes();
  EXPECT_EQ(calls("cuMemGetInfo_v2"), counted + 1);
  auto missing = reinterpret_cast<CUresult (*)()>(find_export(library(SIM_CUDA_PATH), "cuTexRefGetFlags"));
  counted = calls("cuTexRefGetFlags");
  EXPECT_EQ(missing(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(calls("cuTexRefGetFlags"), counted + 1);
  EXPECT_EQ(calls("cuNoSuchFunction"), 0u);
}

// Many threads at once, all doors; what remains must be nothing.
TEST_F(Sim, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t, &wrong] {
      use_card();
      CUstream own;
      CU(cuStreamCreate)(&own, 1);
      for (uint32_t i = 0; i < 40; ++i) {
        CUdeviceptr a, b;
        wrong += CU(cuMemAlloc_v2)(&a, (i + 1) * 10000) != CUDA_SUCCESS;
        wrong += CU(cuMemAllocAsync)(&b, (i + 1) * 100000, own) != CUDA_SUCCESS;
        wrong += fill(a, 2000, i + static_cast<uint32_t>(t), own) != CUDA_SUCCESS;
        wrong += CU(cuMemcpyDtoDAsync_v2)(b, a, 8000, own) != CUDA_SUCCESS;
        wrong += errors_in(b, 2000, i + static_cast<uint32_t>(t), own) != 0;
        wrong += CU(cuMemFreeAsync)(b, own) != CUDA_SUCCESS;
        wrong += CU(cuMemFree_v2)(a) != CUDA_SUCCESS;
      }
      CU(cuStreamSynchronize)(own), CU(cuStreamDestroy_v2)(own);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  CU(cuCtxSynchronize)();
}

}  // namespace
}  // namespace berth::sim
