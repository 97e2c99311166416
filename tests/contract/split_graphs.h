// For the tests of split graphs: the shim that ships on the simulated GPU, a daemon that says what is tested, and graphs that
// are long enough to be split.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "../../tools/load/kernels_ptx.h"
#include "abi/driver_api.h"
#include "support/fake_daemon.h"
#include "support/shim_entry.h"

namespace berth {

using test::shim;

class SplitGraphs : public testing::Test {
 protected:
  static constexpr uint64_t kSplitNs = 100'000, kSpinNs = 200'000;
  static constexpr uint32_t kHold = wire::kGateTrack | wire::kGateHold;
  static constexpr unsigned kOne = 0x3f800000;  // 1.0f

  static void SetUpTestSuite() {
    if (fake) return;  // several suites share the process
    fake = new test::FakeDaemon;
    fake->quota = 4ull << 30;
    if (getenv("BERTH_TEST_VIRTUAL")) card = 1, fake->virtual_cards = {1, 0};
    setenv("BERTH_DRIVER", "sim", 1);
    setenv("BERTH_SIM_GPUS", "2", 1);
    shim = dlopen(SHIM_PATH, RTLD_NOW);
    ASSERT_TRUE(shim) << dlerror();
    ASSERT_EQ(D(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(D(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUmodule module;
    ASSERT_EQ(D(cuModuleLoadData)(&module, load::kKernelsPtx), CUDA_SUCCESS);
    ASSERT_EQ(D(cuModuleGetFunction)(&spin_kernel, module, "berth_spin"), CUDA_SUCCESS);
    ASSERT_EQ(D(cuModuleGetFunction)(&axpy_kernel, module, "berth_axpy"), CUDA_SUCCESS);
    ASSERT_EQ(D(cuModuleGetFunction)(&wait_kernel, module, "berth_wait"), CUDA_SUCCESS);
    ASSERT_TRUE(eventually([] { return fake->mapped == 1; }));
    void* sim = dlopen(SIM_PATH, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_TRUE(sim);
    calls = reinterpret_cast<decltype(calls)>(dlsym(sim, "berth_sim_calls"));
    name_node = reinterpret_cast<decltype(name_node)>(dlsym(sim, "berth_sim_name_node"));
    ASSERT_TRUE(calls && name_node);
    high = test::FakeDaemon::make_activity_page(&high_fd);
    high->slot_count = 1;
    ASSERT_EQ(D(cuMemAlloc_v2)(&ones, 4096), CUDA_SUCCESS);
    ASSERT_EQ(D(cuMemsetD32_v2)(ones, kOne, 1024), CUDA_SUCCESS);
  }
  void SetUp() override {
    fake->page->split_ns = kSplitNs;
    for (wire::PageCard& each : fake->page->cards) {
      each.may_run = wire::kRunFree;
      each.window_ns = kSplitNs;
    }
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    ASSERT_EQ(D(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
    ASSERT_EQ(D(cuMemAlloc_v2)(&data, 4096), CUDA_SUCCESS);
    ASSERT_EQ(D(cuMemsetD32_v2)(data, 0, 1024), CUDA_SUCCESS);
    gate(kHold);
  }
  void TearDown() override {
    gate(0);
    if (watching) fake->watch(77, wire::Relation::none, -1);
    watching = false;
    EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemFree_v2)(data), CUDA_SUCCESS);
  }

  static bool eventually(const std::function<bool()>& is_so) {
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);  // a watchdog, not a measure
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
  }
  // Long enough for something wrong to show; right behaviour does not depend on it.
  static void give_it_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  static wire::PageCard& rules() { return fake->page->cards[card]; }
  static wire::ActivityDevice& held() { return fake->activity->devices[card]; }
  static void gate(uint32_t bits) {  // as the daemon does it
    fake->page->gate = bits;
    fake->watch(0, wire::Relation::none, -1);
  }
  static void watch_high() {
    fake->watch(77, wire::Relation::higher, high_fd, card);
    watching = true;
  }
  static void busy(bool is) { high->slots[0].submitted = high->slots[0].completed + (is ? 1 : 0); }

  // Graphs. Each node comes after the one before, unless told otherwise.
  struct Graph {
    CUgraph handle = nullptr;
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphNode> last;  // what the next one comes after

    Graph() { EXPECT_EQ(D(cuGraphCreate)(&handle, 0), CUDA_SUCCESS); }
    ~Graph() { destroy(); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    void destroy() {
      if (handle) {
        EXPECT_EQ(D(cuGraphDestroy)(handle), CUDA_SUCCESS);
      }
      handle = nullptr;
    }
    CUgraphNode put(CUresult result, CUgraphNode node) {
      EXPECT_EQ(result, CUDA_SUCCESS);
      nodes.push_back(node);
      last = {node};
      return node;
    }
    CUgraphNode kernel(CUfunction function, void** arguments) {
      CUDA_KERNEL_NODE_PARAMS params{function, 1, 1, 1, 64, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
      CUgraphNode node = nullptr;
      CUresult result = D(cuGraphAddKernelNode_v2)(&node, handle, last.data(), last.size(), &params);
      return put(result, node);
    }
    CUgraphNode spin(uint64_t ns = kSpinNs) {
      void* arguments[] = {&ns};
      return kernel(spin_kernel, arguments);
    }
    CUgraphNode axpy(CUdeviceptr y, CUdeviceptr x, float a, uint64_t n = 1) {
      void* arguments[] = {&y, &x, &a, &n};
      return kernel(axpy_kernel, arguments);
    }
    CUgraphNode wait(CUdeviceptr at, uint32_t value) {
      void* arguments[] = {&at, &value};
      return kernel(wait_kernel, arguments);
    }
    CUgraphNode copy(CUdeviceptr to, CUdeviceptr from, size_t bytes = 4) {
      CUDA_MEMCPY3D params = copy_params(to, from, bytes);
      CUgraphNode node = nullptr;
      CUresult result = D(cuGraphAddMemcpyNode)(&node, handle, last.data(), last.size(), &params, context);
      return put(result, node);
    }
    CUgraphNode set(CUdeviceptr at, unsigned value, size_t words = 1) {
      CUDA_MEMSET_NODE_PARAMS params{at, 0, value, 4, words, 1};
      CUgraphNode node = nullptr;
      CUresult result = D(cuGraphAddMemsetNode)(&node, handle, last.data(), last.size(), &params, context);
      return put(result, node);
    }
    CUgraphExec instantiate(uint64_t flags = 0) const {
      CUgraphExec exec = nullptr;
      EXPECT_EQ(D(cuGraphInstantiateWithFlags)(&exec, handle, flags), CUDA_SUCCESS);
      return exec;
    }
    CUgraphExec instantiate_whole() const {
      fake->page->split_ns = 0;
      CUgraphExec exec = instantiate();
      fake->page->split_ns = kSplitNs;
      return exec;
    }
  };
  static CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUdeviceptr from, size_t bytes = 4) {
    CUDA_MEMCPY3D params{};
    params.srcMemoryType = params.dstMemoryType = 2;
    params.srcDevice = from;
    params.dstDevice = to;
    params.WidthInBytes = bytes;
    params.Height = params.Depth = 1;
    return params;
  }
  CUdeviceptr word(uint32_t index) const { return data + 4ull * index; }
  // word(0) += 1 by way of words 1 and 2, slowly: of two launches at once one is lost.
  void count_up(Graph& graph, uint64_t ns = kSpinNs) const {
    graph.copy(word(1), word(0));
    graph.spin(ns);
    graph.copy(word(2), word(1));
    graph.axpy(word(2), ones, 1);
    graph.spin(ns);
    graph.copy(word(0), word(2));
  }

  // Kernels, copies and sets on the first 256 words, with two branches in the middle and an edge that says nothing new.
  // Nodes: 0 set, 1 kernel, 2 spin, 3 kernel, 4 copy, 5 kernel, 6 kernel, 7 spin, 8 copy, 9 set.
  void mixed(Graph& graph) const {
    graph.set(word(64), 0x40400000, 64);                         // 3.0f
    CUgraphNode fork = graph.axpy(word(0), word(64), 0.5f, 64);  // [0] += 1.5
    graph.spin();
    CUgraphNode left = graph.axpy(word(128), word(0), 0.25f, 64);
    graph.last = {fork};
    graph.copy(word(192), word(0), 256);
    CUgraphNode right = graph.axpy(word(192), ones, 7, 64);
    graph.last = {left, right, fork};
    graph.axpy(word(128), word(192), 0.125f, 64);
    graph.spin();
    graph.copy(word(0), word(128), 256);
    graph.set(word(128), 0, 1);
  }

  // How many instances the driver has been asked to launch.
  static uint64_t driver_launches() { return calls("cuGraphLaunch") + calls("cuGraphLaunch_ptsz"); }
  static uint64_t launches_of(CUgraphExec exec, CUstream where) {
    uint64_t before = driver_launches();
    EXPECT_EQ(D(cuGraphLaunch)(exec, where), CUDA_SUCCESS);
    return driver_launches() - before;
  }
  static void finish(CUstream where) { EXPECT_EQ(D(cuStreamSynchronize)(where), CUDA_SUCCESS); }
  static bool is_done(CUstream where) { return D(cuStreamQuery)(where) == CUDA_SUCCESS; }
  // Launches until it is launched in parts, which needs a known length; how often.
  static uint32_t until_parts(CUgraphExec exec, CUstream where) {
    uint32_t launches = 0;
    EXPECT_TRUE(eventually([&] {
      uint64_t parts = launches_of(exec, where);
      ++launches;
      finish(where);
      return parts > 1;
    })) << "never launched in parts";
    return launches;
  }
  std::vector<float> floats(uint32_t from, uint32_t count) const {
    std::vector<float> got(count);
    EXPECT_EQ(D(cuMemcpyDtoH_v2)(got.data(), word(from), count * 4), CUDA_SUCCESS);
    return got;
  }
  float number(uint32_t index) const { return floats(index, 1)[0]; }
  static void destroy(CUgraphExec exec) { EXPECT_EQ(D(cuGraphExecDestroy)(exec), CUDA_SUCCESS); }

  static inline test::FakeDaemon* fake = nullptr;
  static inline int card = 0;  // of the program's first device
  static inline CUcontext context;
  static inline CUfunction spin_kernel, axpy_kernel, wait_kernel;
  static inline uint64_t (*calls)(const char*);
  static inline void (*name_node)(void*, int);  // of what type the driver says that it is
  static inline wire::ActivityPage* high;
  static inline int high_fd;
  static inline bool watching = false;
  static inline CUdeviceptr ones = 0;
  CUstream stream = nullptr;
  CUdeviceptr data = 0;
};

}  // namespace berth
