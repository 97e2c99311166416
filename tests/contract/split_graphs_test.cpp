// Long graphs in parts: the same results, higher work between the parts, the same order as of whole launches.
#include "split_graphs.h"

#include <atomic>

namespace berth {
TEST_F(SplitGraphs, ResultsAreThoseOfTheWholeBitByBit) {
  Graph graph;
  mixed(graph);
  CUgraphExec split = graph.instantiate(), whole = graph.instantiate_whole();
  until_parts(split, stream);
  constexpr int kLaunches = 30;
  std::vector<float> results[2];
  uint64_t in_parts = 0;
  for (CUgraphExec exec : {whole, split}) {
    ASSERT_EQ(D(cuMemsetD32_v2)(data, 0, 1024), CUDA_SUCCESS);
    uint64_t before = driver_launches();
    for (int i = 0; i < kLaunches; ++i) {
      ASSERT_EQ(D(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
      if (i % 3 == 0) finish(stream);
    }
    finish(stream);
    if (exec == whole) {
      EXPECT_EQ(driver_launches() - before, static_cast<uint64_t>(kLaunches));
    } else {
      in_parts = driver_launches() - before - kLaunches;
    }
    results[exec == split] = floats(0, 256);
  }
  EXPECT_GT(in_parts, 20u) << "most launches were to be in parts";
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0][0], 0);
  destroy(split);
  destroy(whole);
}

// The first part runs until it is let go; meanwhile higher work arrives.
TEST_F(SplitGraphs, HigherWorkComesBetweenTheParts) {
  void* host;
  ASSERT_EQ(D(cuMemHostAlloc)(&host, 4096, 0), CUDA_SUCCESS);
  auto* flags = static_cast<volatile uint32_t*>(host);
  CUdeviceptr begun, let_go, over;
  ASSERT_EQ(D(cuMemHostGetDevicePointer_v2)(&begun, host, 0), CUDA_SUCCESS);
  let_go = begun + 4;
  over = begun + 8;
  watch_high();
  for (bool split : {false, true}) {
    Graph graph;
    graph.set(begun, 1);
    graph.wait(let_go, 1);
    for (int i = 0; i < 4; ++i) graph.spin();
    graph.set(over, 1);
    CUgraphExec exec = split ? graph.instantiate() : graph.instantiate_whole();
    busy(false);
    flags[1] = 1;
    if (split) until_parts(exec, stream);
    for (int i = 0; i < 3; ++i) flags[i] = 0;
    ASSERT_EQ(D(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    ASSERT_TRUE(eventually([&] { return flags[0] == 1; }));
    busy(true);
    ASSERT_TRUE(eventually([&] { return held().go == 0; }));
    flags[1] = 1;
    if (split) {
      give_it_time();
      EXPECT_EQ(flags[2], 0u) << "parts are behind the higher work";
      EXPECT_FALSE(is_done(stream));
      busy(false);
    }
    EXPECT_TRUE(eventually([&] { return flags[2] == 1; })) << "a whole graph that has begun goes on";
    busy(false);
    finish(stream);
    destroy(exec);
  }
  EXPECT_EQ(D(cuMemFreeHost)(host), CUDA_SUCCESS);
}

// Batches gather as many parts as fit into the window: of one long part and nine short ones two batches are made.
TEST_F(SplitGraphs, PartsHaveLengthsOfTheirOwn) {
  Graph graph;
  graph.spin(1'000'000);
  for (int i = 0; i < 9; ++i) graph.spin(1000);
  fake->page->split_ns = 10'000;  // as many parts as nodes, also if it is thought to be much shorter at first
  CUgraphExec exec = graph.instantiate();
  until_parts(exec, stream);
  EXPECT_EQ(launches_of(exec, stream), 10u);
  auto batches = [] {
    uint32_t sum = 0;
    for (const wire::ActivitySlot& slot : fake->activity->slots) sum += slot.submitted;
    return sum;
  };
  EXPECT_TRUE(eventually([&, in_a_row = 0]() mutable {
    uint32_t before = batches();
    launches_of(exec, stream);
    finish(stream);
    in_a_row = batches() - before == 2 ? in_a_row + 1 : 0;
    return in_a_row == 100;
  }));
  destroy(exec);
}

// Whole launches and launches in parts, on two streams and the per-thread ones, while it changes whether work is held.
TEST_F(SplitGraphs, LaunchesOfOneInstanceFollowEachOtherOnAnyStreams) {
  Graph graph;
  count_up(graph, 500'000);
  CUgraphExec exec = graph.instantiate();
  float expected = static_cast<float>(until_parts(exec, stream));
  CUstream other;
  ASSERT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
  uint64_t before = driver_launches();
  for (int i = 0; i < 40; ++i, ++expected) {
    if (i % 10 == 6) gate(0);
    if (i % 10 == 8) gate(kHold);
    ASSERT_EQ(D(cuGraphLaunch)(exec, i % 2 ? stream : other), CUDA_SUCCESS);
  }
  EXPECT_GT(driver_launches() - before, 80u) << "alternating streams are no reason to stay whole";
  for (int i = 0; i < 10; ++i, ++expected) ASSERT_EQ(D(cuGraphLaunch_ptsz)(exec, nullptr), CUDA_SUCCESS);
  std::vector<std::thread> threads;
  for (CUstream own : {stream, other, static_cast<CUstream>(nullptr)})
    threads.emplace_back([&, own] {
      EXPECT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
      for (int i = 0; i < 15; ++i) EXPECT_EQ(own ? D(cuGraphLaunch)(exec, own) : D(cuGraphLaunch_ptsz)(exec, own), CUDA_SUCCESS);
    });
  for (auto& thread : threads) thread.join();
  expected += 45;
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(number(0), expected);
  EXPECT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
  destroy(exec);
}

// A stream that ends with work, and its handle that is given out again.
TEST_F(SplitGraphs, LaunchesFollowEachOtherBeyondTheirStreams) {
  Graph graph;
  count_up(graph, 500'000);
  CUgraphExec exec = graph.instantiate();
  float expected = static_cast<float>(until_parts(exec, stream));
  for (int i = 0; i < 20; ++i, ++expected) {
    CUstream own;
    ASSERT_EQ(D(cuStreamCreate)(&own, 1), CUDA_SUCCESS);
    ASSERT_EQ(D(cuGraphLaunch)(exec, own), CUDA_SUCCESS);
    ASSERT_EQ(D(cuStreamDestroy_v2)(own), CUDA_SUCCESS);
  }
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(number(0), expected);
  destroy(exec);
}

// What another thread puts into the stream, or into one that the default stream orders with it, sees a launch done or not.
TEST_F(SplitGraphs, NothingComesBetweenThePartsOfOneLaunch) {
  void* host;
  constexpr int kLooks = 200;
  ASSERT_EQ(D(cuMemHostAlloc)(&host, kLooks * 8, 0), CUDA_SUCCESS);
  CUstream blocking;
  ASSERT_EQ(D(cuStreamCreate)(&blocking, 0), CUDA_SUCCESS);
  struct Way {
    CUstream launches, looks;
  };
  for (Way way : {Way{stream, stream}, Way{nullptr, blocking}, Way{blocking, nullptr}}) {
    ASSERT_EQ(D(cuMemsetD32_v2)(data, 0, 2), CUDA_SUCCESS);
    Graph graph;
    graph.axpy(word(0), ones, 1);
    graph.spin();
    graph.spin();
    graph.axpy(word(1), ones, 1);
    CUgraphExec exec = graph.instantiate();
    until_parts(exec, way.launches);
    std::atomic<bool> looked{false};
    std::thread looker([&] {
      EXPECT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
      for (int i = 0; i < kLooks; ++i) {
        EXPECT_EQ(D(cuMemcpyDtoHAsync_v2)(static_cast<float*>(host) + 2 * i, data, 8, way.looks), CUDA_SUCCESS);
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // a launch that finds a look on its way is whole
      }
      looked = true;
    });
    uint64_t parts = 0, launches = 0;
    for (; !looked || launches < 20; ++launches) parts += launches_of(exec, way.launches);
    looker.join();
    EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_GT(parts, launches);
    for (int i = 0; i < kLooks; ++i) {
      const float* pair = static_cast<float*>(host) + 2 * i;
      ASSERT_EQ(pair[0], pair[1]) << "look " << i;
    }
    destroy(exec);
  }
  EXPECT_EQ(D(cuStreamDestroy_v2)(blocking), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemFreeHost)(host), CUDA_SUCCESS);
}

TEST_F(SplitGraphs, ACapturedLaunchIsANodeOfTheWhole) {
  Graph graph;
  count_up(graph);
  CUgraphExec exec = graph.instantiate();
  float expected = static_cast<float>(until_parts(exec, stream));
  CUstream other;
  ASSERT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
  for (int i = 0; i < 6; ++i) {
    CUstreamCaptureMode mode = i % 3;
    CUstream where = i < 3 ? stream : other;
    CUgraph captured;
    EXPECT_GT(launches_of(exec, stream), 1u);
    ++expected;
    ASSERT_EQ(D(cuStreamBeginCapture_v2)(where, mode), CUDA_SUCCESS);
    EXPECT_EQ(launches_of(exec, where), 1u);
    EXPECT_EQ(launches_of(exec, where), 1u);
    ASSERT_EQ(D(cuStreamEndCapture)(where, &captured), CUDA_SUCCESS) << mode;
    size_t nodes = 0;
    EXPECT_EQ(D(cuGraphGetNodes)(captured, nullptr, &nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 2u);
    CUgraphExec outer;
    ASSERT_EQ(D(cuGraphInstantiateWithFlags)(&outer, captured, 0), CUDA_SUCCESS);
    EXPECT_EQ(D(cuGraphLaunch)(outer, stream), CUDA_SUCCESS);
    finish(stream);
    expected += 2;
    EXPECT_EQ(number(0), expected);
    destroy(outer);
    EXPECT_EQ(D(cuGraphDestroy)(captured), CUDA_SUCCESS);
  }
  EXPECT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
  destroy(exec);
}

// While another stream is captured nothing of ours goes into any but what the order needs.
TEST_F(SplitGraphs, OrderHoldsWhileAnotherStreamIsCaptured) {
  Graph graph;
  count_up(graph, 500'000);
  CUgraphExec exec = graph.instantiate();
  float expected = static_cast<float>(until_parts(exec, stream));
  CUstream other, captured;
  ASSERT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(D(cuStreamCreate)(&captured, 1), CUDA_SUCCESS);
  for (int i = 0; i < 10; ++i) {
    CUgraph made;
    EXPECT_GT(launches_of(exec, stream), 1u);
    ASSERT_EQ(D(cuStreamBeginCapture_v2)(captured, 0), CUDA_SUCCESS);
    EXPECT_EQ(launches_of(exec, other), 1u);
    EXPECT_EQ(D(cuMemsetD32Async)(word(9), 1, 1, captured), CUDA_SUCCESS);
    ASSERT_EQ(D(cuStreamEndCapture)(captured, &made), CUDA_SUCCESS);
    EXPECT_EQ(D(cuGraphDestroy)(made), CUDA_SUCCESS);
    expected += 2;
    EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(number(0), expected);
    // The last launch was whole on another stream, so one more is before parts are used again.
    expected += static_cast<float>(until_parts(exec, stream));
  }
  EXPECT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
  EXPECT_EQ(D(cuStreamDestroy_v2)(captured), CUDA_SUCCESS);
  destroy(exec);
}

TEST_F(SplitGraphs, InstancesGraphsAndStreamsMayEndWhileTheirWorkIsHeld) {
  Graph graph;
  count_up(graph);
  CUgraphExec exec = graph.instantiate();
  graph.destroy();  // programs do so once they have their instance
  float expected = static_cast<float>(until_parts(exec, stream));
  CUstream own;
  ASSERT_EQ(D(cuStreamCreate)(&own, 1), CUDA_SUCCESS);
  rules().may_run = wire::kRunHeld;
  ASSERT_TRUE(eventually([&] {
    D(cuMemsetD32Async)(word(9), 1, 1, stream);
    return held().go == 0;
  }));
  EXPECT_GT(launches_of(exec, own), 1u);
  destroy(exec);
  EXPECT_EQ(D(cuStreamDestroy_v2)(own), CUDA_SUCCESS);
  give_it_time();
  rules().may_run = wire::kRunFree;
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(number(0), expected + 1);
}

// All that was in a context is gone with it; its instances' handles may come again.
TEST_F(SplitGraphs, AContextTakesItsGraphsWithIt) {
  for (int round = 0; round < 3; ++round) {
    CUcontext second;
    ASSERT_EQ(D(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CUmodule module;
    CUfunction its_spin;
    CUstream own;
    ASSERT_EQ(D(cuModuleLoadData)(&module, load::kKernelsPtx), CUDA_SUCCESS);
    ASSERT_EQ(D(cuModuleGetFunction)(&its_spin, module, "berth_spin"), CUDA_SUCCESS);
    ASSERT_EQ(D(cuStreamCreate)(&own, 1), CUDA_SUCCESS);
    Graph graph;
    uint64_t ns = kSpinNs;
    void* arguments[] = {&ns};
    for (int i = 0; i < 6; ++i) graph.kernel(its_spin, arguments);
    CUgraphExec exec = graph.instantiate();
    until_parts(exec, own);
    ASSERT_EQ(D(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    uint64_t before = calls("cuGraphExecDestroy");
    destroy(exec);
    EXPECT_EQ(calls("cuGraphExecDestroy"), before + 1) << "parts are not touched any more";
  }
  Graph graph;
  count_up(graph);
  CUgraphExec exec = graph.instantiate();
  auto launches = static_cast<float>(until_parts(exec, stream));
  EXPECT_EQ(number(0), launches);
  destroy(exec);
}

// Launched in two contexts, on the same device and on another one: our event is of one of them.
TEST_F(SplitGraphs, OrderHoldsAcrossContexts) {
  for (CUdevice device : {0, 1}) {
    ASSERT_EQ(D(cuMemsetD32_v2)(data, 0, 1), CUDA_SUCCESS);
    Graph graph;
    count_up(graph, 500'000);
    CUgraphExec exec = graph.instantiate();
    float expected = static_cast<float>(until_parts(exec, stream));
    CUcontext second;
    CUstream there;
    ASSERT_EQ(D(cuCtxCreate_v2)(&second, 0, device), CUDA_SUCCESS);
    if (device == 1) {
      ASSERT_EQ(D(cuCtxEnablePeerAccess)(context, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(D(cuStreamCreate)(&there, 1), CUDA_SUCCESS);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    for (int i = 0; i < 20; ++i, ++expected) ASSERT_EQ(D(cuGraphLaunch)(exec, i % 2 ? there : stream), CUDA_SUCCESS);
    finish(stream);
    finish(there);
    EXPECT_EQ(number(0), expected) << "device " << device;
    EXPECT_EQ(D(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    destroy(exec);
  }
}

}  // namespace berth
