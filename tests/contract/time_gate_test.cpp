// The time gate of the shim that ships, on the simulated GPU, with a daemon that says what is tested: what is tracked, what
// waits on the device and what lets it go, and that nothing else about the program's work changes.
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
namespace {

using wire::ActivitySlot;
using wire::Relation;
constexpr uint32_t kTrack = wire::kGateTrack, kHold = wire::kGateTrack | wire::kGateHold;
constexpr auto kLong = std::chrono::seconds(20);  // a watchdog, not a measure

using test::shim;
test::FakeDaemon* fake;

bool eventually(const std::function<bool()>& is_so) {
  auto until = std::chrono::steady_clock::now() + kLong;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// Long enough for something wrong to show; right behaviour does not depend on it.
void give_it_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

uint64_t now_ns() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

class TimeGate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fake = new test::FakeDaemon;
    fake->quota = 4ull << 30;
    setenv("BERTH_DRIVER", "sim", 1);
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
    high = test::FakeDaemon::make_activity_page(&high_fd);
    high->slot_count = 1;
  }
  void SetUp() override {
    rules().may_run = wire::kRunFree;
    rules().paused = 0;
    rules().window_ns = 1;  // every submission is a batch, so that every one is held
    rules().excess = 0;
    rules().starved_ns = 0;
    busy(false);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    ASSERT_EQ(D(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
  }
  void TearDown() override {
    gate(0);
    if (watching) fake->watch(77, Relation::none, -1);
    watching = false;
    EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 1; }));
  }

  static wire::PageCard& rules() { return fake->page->cards[0]; }
  // As the daemon does it: the word, and a packet so that the helper looks at it.
  static void gate(uint32_t bits) {
    fake->page->gate = bits;
    fake->watch(0, Relation::none, -1);
  }
  static void watch_high() {
    fake->watch(77, Relation::higher, high_fd);
    watching = true;
  }
  static void busy(bool is) { high->slots[0].submitted = high->slots[0].completed + (is ? 1 : 0); }

  void spin(uint64_t ns, CUstream where) {
    void* arguments[] = {&ns};
    EXPECT_EQ(D(cuLaunchKernel)(spin_kernel, 1, 1, 1, 32, 1, 1, 0, where, arguments, nullptr), CUDA_SUCCESS);
  }
  void axpy(CUdeviceptr y, CUdeviceptr x, uint64_t n, CUstream where) {
    float a = 1;
    void* arguments[] = {&y, &x, &a, &n};
    EXPECT_EQ(D(cuLaunchKernel)(axpy_kernel, 1, 1, 1, 64, 1, 1, 0, where, arguments, nullptr), CUDA_SUCCESS);
  }
  // Returns when there is work that waits on the device: the helper looks when there is some.
  void hold_work() {
    ASSERT_TRUE(eventually([&] {
      spin(1000, stream);
      return fake->activity->devices[0].go == 0;
    }));
    spin(1000, stream);
  }
  bool is_done(CUstream where) { return D(cuStreamQuery)(where) == CUDA_SUCCESS; }
  void finish(CUstream where) { EXPECT_EQ(D(cuStreamSynchronize)(where), CUDA_SUCCESS); }

  static inline CUcontext context;
  static inline CUfunction spin_kernel, axpy_kernel, wait_kernel;
  static inline wire::ActivityPage* high;
  static inline int high_fd;
  static inline bool watching = false;
  CUstream stream;
};

uint32_t outstanding() { return wire::outstanding(*fake->activity, 0); }

TEST_F(TimeGate, TrackedWorkIsMarkedByTheDeviceAndItsLengthIsLearned) {
  rules().window_ns = 200'000;
  gate(kTrack);
  uint64_t before = fake->activity->devices[0].service_ns;
  for (int i = 0; i < 40; ++i) spin(1'000'000, stream);  // each longer than the window: each a batch
  // No synchronisation of the program: the device itself says what is complete.
  ASSERT_TRUE(eventually([] { return outstanding() == 0; }));
  for (int i = 0; i < 20; ++i) {
    spin(1'000'000, stream);
    finish(stream);
  }
  EXPECT_GE(fake->activity->devices[0].submissions, 60u);
  // The first 40 were submitted before any was known, the other 20 take 1 ms each.
  EXPECT_GT(fake->activity->devices[0].service_ns - before, 15'000'000u);
  EXPECT_GT(fake->activity->devices[0].batch_ns, 500'000u);
  EXPECT_TRUE(is_done(stream));
}

TEST_F(TimeGate, ASynchronisationTellsThatNothingIsOutstanding) {
  gate(kTrack);
  spin(1000, stream);
  finish(stream);
  rules().window_ns = 1'000'000'000;
  for (int i = 0; i < 10; ++i) spin(1000, stream);  // known by now, so the batch stays open
  uint32_t open = 0;
  for (const ActivitySlot& slot : fake->activity->slots) open += slot.open;
  EXPECT_EQ(open, 1u);
  finish(stream);
  EXPECT_FALSE(wire::is_busy(*fake->activity, 0, now_ns()));
  spin(1000, nullptr);
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_FALSE(wire::is_busy(*fake->activity, 0, now_ns()));
  CUdeviceptr memory;
  ASSERT_EQ(D(cuMemAlloc_v2)(&memory, 4096), CUDA_SUCCESS);
  char here[64];
  spin(1000, nullptr);
  EXPECT_EQ(D(cuMemcpyDtoH_v2)(here, memory, sizeof here), CUDA_SUCCESS);
  EXPECT_FALSE(wire::is_busy(*fake->activity, 0, now_ns()));
  D(cuMemFree_v2)(memory);
}

TEST_F(TimeGate, HeldWorkWaitsOnTheDeviceAndTheCallerRunsAhead) {
  rules().may_run = wire::kRunHeld;
  gate(kHold);
  ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 0; }));
  CUdeviceptr x, y;
  ASSERT_EQ(D(cuMemAlloc_v2)(&x, 4096), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemAlloc_v2)(&y, 4096), CUDA_SUCCESS);
  rules().may_run = wire::kRunFree;
  ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 1; }));
  float ones[1024], got[1024] = {};
  for (float& one : ones) one = 1;
  EXPECT_EQ(D(cuMemcpyHtoD_v2)(x, ones, sizeof ones), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemcpyHtoD_v2)(y, ones, sizeof ones), CUDA_SUCCESS);
  rules().may_run = wire::kRunHeld;
  ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 0; }));
  for (int i = 0; i < 100; ++i) axpy(y, x, 1024, stream);  // all these calls return although nothing may run
  give_it_time();
  EXPECT_FALSE(is_done(stream));
  EXPECT_GT(fake->activity->devices[0].held_ns, 0u);
  EXPECT_EQ(fake->activity->devices[0].held_by, 2u);
  rules().may_run = wire::kRunFree;
  EXPECT_EQ(D(cuMemcpyDtoHAsync_v2)(got, y, sizeof got, stream), CUDA_SUCCESS);
  finish(stream);
  for (float one : got) ASSERT_EQ(one, 101);
  D(cuMemFree_v2)(x);
  D(cuMemFree_v2)(y);
}

TEST_F(TimeGate, TwoHundredStreamsWaitOnTheDevice) {
  CUstream streams[200];
  for (CUstream& one : streams) ASSERT_EQ(D(cuStreamCreate)(&one, 1), CUDA_SUCCESS);
  rules().may_run = wire::kRunHeld;
  gate(kHold);
  hold_work();
  for (CUstream one : streams) spin(1000, one);  // none of these calls waits
  EXPECT_EQ(fake->activity->devices[0].go, 0u);
  EXPECT_GE(outstanding(), 200u);
  rules().may_run = wire::kRunFree;
  for (CUstream one : streams) {
    finish(one);
    EXPECT_EQ(D(cuStreamDestroy_v2)(one), CUDA_SUCCESS);
  }
}

TEST_F(TimeGate, WorkOfAHigherClientComesFirst) {
  watch_high();
  gate(kHold);
  spin(1000, stream);
  finish(stream);
  busy(true);
  hold_work();
  EXPECT_EQ(fake->activity->devices[0].held_by, 1u);
  EXPECT_EQ(fake->activity->devices[0].blocker, 77u);
  give_it_time();
  EXPECT_FALSE(is_done(stream));
  busy(false);
  finish(stream);
  // Submissions without a mark keep others away while they are recent or not due, and not for ever.
  high->slots[0].last_ns = now_ns();
  high->slots[0].due_ns = now_ns() + 500'000'000;
  high->slots[0].open = 1;
  uint64_t due = high->slots[0].due_ns;
  hold_work();
  finish(stream);
  EXPECT_GE(now_ns(), due);
  high->slots[0].open = 0;
}

// A service that waits for each request: its batches would never be full, nor measured, nor marked by the device.
TEST_F(TimeGate, WorkThatIsAlwaysWaitedForIsMarkedAllTheSame) {
  rules().window_ns = 1'000'000'000;
  gate(kTrack);
  for (int i = 0; i < 3; ++i) {
    spin(1000, stream);
    spin(1000, stream);
    finish(stream);
  }
  ASSERT_TRUE(eventually([&] {  // the marks of the kernel's first, unknown submissions are over
    uint32_t before = fake->activity->slots[0].submitted;
    spin(1000, stream);
    bool early = fake->activity->slots[0].submitted != before;
    spin(20'000'000, stream);
    bool marked = fake->activity->slots[0].submitted == before + 1 && wire::is_busy(*fake->activity, 0, now_ns());
    finish(stream);
    return !early && marked;
  }));
}

// A loop that waits after many submissions gets one mark more for that, and not a mark after each few.
TEST_F(TimeGate, AWaitMakesNoSmallBatches) {
  rules().window_ns = 1'000'000;
  gate(kTrack);
  EXPECT_TRUE(eventually([&] {  // once the length is known: five a batch, and the rest
    uint32_t before = fake->activity->slots[0].submitted;
    for (int i = 0; i < 12; ++i) spin(200'000, stream);
    uint32_t batches = fake->activity->slots[0].submitted - before;
    finish(stream);
    return batches >= 2 && batches <= 4;
  }));
}

// After many batches only some are measured, and yet all that is new.
TEST_F(TimeGate, WhatIsNewIsMeasuredHoweverManyBatchesThereHaveBeen) {
  gate(kTrack);
  for (int i = 0; i < 300; ++i) spin(1000, stream);  // a batch each
  finish(stream);
  rules().window_ns = 1'000'000'000;
  uint64_t ns = 1000;
  void* arguments[] = {&ns};
  auto fresh = [&](unsigned threads) {  // by its block the work is another
    EXPECT_EQ(D(cuLaunchKernel)(spin_kernel, 1, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr), CUDA_SUCCESS);
  };
  auto batches = [] { return fake->activity->slots[0].submitted.load(); };
  spin(1000, stream);
  finish(stream);
  for (unsigned kind = 1; kind <= 12; ++kind) {
    fresh(40 + kind);  // unknown, so it ends its batch
    finish(stream);
  }
  spin(1000, stream);
  finish(stream);
  uint32_t before = batches();
  for (unsigned kind = 1; kind <= 12; ++kind) fresh(40 + kind);
  EXPECT_LE(batches() - before, 1u) << "all are known, so they are gathered";
  finish(stream);
}

TEST_F(TimeGate, ADeadHigherClientHoldsNobody) {
  watch_high();
  gate(kHold);
  busy(true);
  hold_work();
  fake->watch(77, Relation::none, -1);  // what the daemon says when it dies
  watching = false;
  finish(stream);
}

// The budget is worked out from the busy periods that this client sees (shim/rhythm_test.cpp): at first there is no company.
TEST_F(TimeGate, ABudgetAllowsCompanyOnceBusyPeriodsAreKnown) {
  rules().excess = 99'000;
  watch_high();
  gate(kHold);
  busy(true);
  hold_work();
  EXPECT_EQ(fake->activity->devices[0].company_ns, 0u);
  while (fake->activity->devices[0].company_ns == 0) {  // the watchdog is the test's time limit
    busy(false);
    finish(stream);
    for (int i = 0; i < 5; ++i) spin(100'000, stream);  // the helper looks while there is work
    busy(true);
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  spin(1000, stream);
  finish(stream);  // beside the busy one
  rules().excess = 0;
  hold_work();
  busy(false);
  finish(stream);
}

TEST_F(TimeGate, AStarvedClientGetsABatchNowAndThen) {
  watch_high();
  gate(kHold);
  busy(true);
  rules().starved_ns = 1'000'000;
  for (int i = 0; i < 3; ++i) {
    spin(1000, stream);
    finish(stream);  // the watchdog is the test's time limit
  }
  rules().paused = 1;  // of a pause there is no exception
  hold_work();
  give_it_time();
  EXPECT_FALSE(is_done(stream));
  rules().paused = 0;
  finish(stream);
}

// Ranks wait for each other's kernels: one that has begun and does not end may be waiting for one that is held here.
TEST_F(TimeGate, AStuckKernelOfAPeerLetsWorkGo) {
  int peer_fd;
  wire::ActivityPage* peer = test::FakeDaemon::make_activity_page(&peer_fd);
  peer->slot_count = 1;
  peer->slots[0].submitted = 1;
  watch_high();
  fake->watch(78, Relation::peer, peer_fd);
  gate(kHold | wire::kGateStarted);
  busy(true);
  hold_work();
  give_it_time();
  EXPECT_FALSE(is_done(stream)) << "a peer that is only held is no reason";
  peer->slots[0].started = 1;
  finish(stream);
  fake->watch(78, Relation::none, -1);
  busy(false);
  close(peer_fd);
}

TEST_F(TimeGate, AKernelThatWaitsForAnotherStreamsKernelGetsIt) {
  gate(kHold);
  CUdeviceptr flag;
  CUstream other;
  ASSERT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemAlloc_v2)(&flag, 4), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemsetD32_v2)(flag, 0, 1), CUDA_SUCCESS);
  for (uint32_t round = 1; round <= 20; ++round) {
    uint32_t value = round;
    void* arguments[] = {&flag, &value};
    ASSERT_EQ(D(cuLaunchKernel)(wait_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(D(cuMemsetD32Async)(flag, round, 1, other), CUDA_SUCCESS);
    finish(stream);
  }
  D(cuMemFree_v2)(flag);
  EXPECT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
}

TEST_F(TimeGate, CapturesAreNotDisturbed) {
  for (uint32_t bits : {kTrack, kHold})
    for (CUstreamCaptureMode mode : {0, 1, 2}) {
      gate(bits);
      spin(1000, stream);
      CUgraph graph;
      CUgraphExec exec;
      ASSERT_EQ(D(cuStreamBeginCapture_v2)(stream, mode), CUDA_SUCCESS);
      for (int i = 0; i < 3; ++i) spin(1000, stream);
      std::thread([&] {  // another thread's work goes on meanwhile
        EXPECT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
        CUstream other;
        EXPECT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
        for (int i = 0; i < 10; ++i) spin(1000, other);
        EXPECT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
      }).join();
      ASSERT_EQ(D(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS) << mode;
      size_t nodes = 0;
      ASSERT_EQ(D(cuGraphGetNodes)(graph, nullptr, &nodes), CUDA_SUCCESS);
      EXPECT_EQ(nodes, 3u) << "nothing of ours is in it";
      ASSERT_EQ(D(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(D(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
      finish(stream);
      EXPECT_EQ(D(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
      EXPECT_EQ(D(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
}

// 32 threads, each on its own default stream or an own stream, while the gate closes and opens a thousand times.
TEST_F(TimeGate, AStormOfThreadsAcrossClosures) {
  constexpr int kThreads = 32, kRounds = 40;
  gate(kHold);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      EXPECT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
      CUstream own = reinterpret_cast<CUstream>(2);
      if (t % 2) {
        EXPECT_EQ(D(cuStreamCreate)(&own, 1), CUDA_SUCCESS);
      }
      CUdeviceptr x, y;
      EXPECT_EQ(D(cuMemAlloc_v2)(&x, 256), CUDA_SUCCESS);
      EXPECT_EQ(D(cuMemAlloc_v2)(&y, 256), CUDA_SUCCESS);
      EXPECT_EQ(D(cuMemsetD32Async)(x, 0x3f800000, 64, own), CUDA_SUCCESS);  // 1.0f
      EXPECT_EQ(D(cuMemsetD32Async)(y, 0, 64, own), CUDA_SUCCESS);
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < 5; ++i) axpy(y, x, 64, own);
        if (round % 8 == 7) finish(own);
      }
      float got[64] = {};
      EXPECT_EQ(D(cuMemcpyDtoHAsync_v2)(got, y, sizeof got, own), CUDA_SUCCESS);
      finish(own);
      for (float one : got) EXPECT_EQ(one, 5 * kRounds);
      D(cuMemFree_v2)(x);
      D(cuMemFree_v2)(y);
      if (t % 2) {
        EXPECT_EQ(D(cuStreamDestroy_v2)(own), CUDA_SUCCESS);
      }
      --running;
    });
  int closures = 0;
  while (running || closures < 1000) {
    rules().may_run = ++closures % 2 ? wire::kRunHeld : wire::kRunFree;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  rules().may_run = wire::kRunFree;
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(eventually([] { return !wire::is_busy(*fake->activity, 0, now_ns()); }));
}

TEST_F(TimeGate, StreamsAndContextsMayEndWhileTheirWorkIsHeld) {
  rules().may_run = wire::kRunHeld;
  gate(kHold);
  ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 0; }));
  for (int i = 0; i < 20; ++i) {
    CUstream other;
    ASSERT_EQ(D(cuStreamCreate)(&other, 1), CUDA_SUCCESS);
    spin(1000, other);
    ASSERT_EQ(D(cuStreamDestroy_v2)(other), CUDA_SUCCESS);
  }
  rules().may_run = wire::kRunFree;
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] { return outstanding() == 0; }));
  CUcontext second;
  ASSERT_EQ(D(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
  spin(1000, nullptr);
  EXPECT_EQ(D(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
  ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  spin(1000, stream);
  finish(stream);
  EXPECT_TRUE(eventually([] { return !wire::is_busy(*fake->activity, 0, now_ns()); }));
}

TEST_F(TimeGate, TheDaemonIsToldOnceThatThereIsWorkAgain) {
  int before = fake->told_active;
  gate(kTrack | wire::kGateTell);
  for (int i = 0; i < 10; ++i) spin(1000, stream);
  EXPECT_TRUE(eventually([&] { return fake->told_active == before + 1; }));
  finish(stream);
  gate(kTrack);
  spin(1000, stream);
  gate(kTrack | wire::kGateTell);
  spin(1000, stream);
  EXPECT_TRUE(eventually([&] { return fake->told_active == before + 2; }));
  finish(stream);
}

// Last: without a daemon nothing is held.
TEST_F(TimeGate, ZADaemonThatDiesLetsAllGo) {
  rules().may_run = wire::kRunHeld;
  gate(kHold);
  ASSERT_TRUE(eventually([] { return fake->activity->devices[0].go == 0; }));
  spin(1000, stream);
  wire::ActivityPage* page = fake->activity;
  delete fake;
  ASSERT_TRUE(eventually([&] { return is_done(stream); }));
  EXPECT_EQ(page->devices[0].go, 1u);
  fake = new test::FakeDaemon;  // for TearDown
  ASSERT_TRUE(eventually([] { return fake->mapped == 1; }));
}

}  // namespace
}  // namespace berth
