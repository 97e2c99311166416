// Every submission of the list, in all its versions and flavours, waits while the gate is shut and reaches the driver
// once it is open. The driver is the recorder (tests/abi/recorder): every name, counting calls. The shim is the file
// that ships.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "abi/generated/driver_rows.h"
#include "support/fake_daemon.h"

namespace berth {
namespace {

using abi::driver::Class;
using abi::driver::kRowFacts;
using abi::driver::kRows;
using Entry = int (*)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*);

class Gates : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon = new test::FakeDaemon;
    setenv("BERTH_DRIVER", RECORDER_PATH, 1);
    shim = dlopen(SHIM_PATH, RTLD_NOW);
    ASSERT_TRUE(shim) << dlerror();
    auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(shim, "cuInit"));
    ASSERT_EQ(init(0), 0);
    ASSERT_EQ(daemon->hellos, 1) << "the shim must be attached, or no gate can shut";
    void* recorder = dlopen(RECORDER_PATH, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_TRUE(recorder);
    calls = static_cast<std::atomic<uint32_t>*>(dlsym(recorder, "berth_recorder_calls"));
    ASSERT_TRUE(calls);
    answers = static_cast<void**>(dlsym(recorder, "berth_recorder_answers"));
    ASSERT_TRUE(answers);
  }
  static void TearDownTestSuite() { delete daemon; }

  static void call(int row) {
    static char buffer[4096];
    auto entry = reinterpret_cast<Entry>(dlsym(shim, kRowFacts[row].name));
    entry(buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer);
  }
  static void shut(uint32_t value) {
    daemon->page->gate = value;
    if (!value) syscall(SYS_futex, &daemon->page->gate, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
  }

  template <class Function>
  static void answer(const char* name, Function* function) {
    int found = 0;
    for (int row = 0; row < kRows; ++row)
      if (std::string_view(kRowFacts[row].name) == name) answers[row] = reinterpret_cast<void*>(function), ++found;
    ASSERT_EQ(found, 1) << name;
  }

  static test::FakeDaemon* daemon;
  static void* shim;
  static std::atomic<uint32_t>* calls;
  static void** answers;  // by row: what the recorder does instead of answering success
};
test::FakeDaemon* Gates::daemon;
void* Gates::shim;
std::atomic<uint32_t>* Gates::calls;
void** Gates::answers;

TEST_F(Gates, OpenTheyLetEveryRowThrough) {
  for (int row = 0; row < kRows; ++row) {
    if (kRowFacts[row].cls != Class::submit && kRowFacts[row].cls != Class::none) continue;
    uint32_t before = calls[row];
    call(row);
    EXPECT_EQ(calls[row], before + 1) << kRowFacts[row].name;
  }
}

TEST_F(Gates, ShutTheyHoldEverySubmission) {
  std::vector<int> rows;
  for (int row = 0; row < kRows; ++row)
    if (kRowFacts[row].cls == Class::submit) rows.push_back(row);
  ASSERT_GT(rows.size(), 150u);
  std::vector<uint32_t> before(calls, calls + kRows);
  shut(1);
  std::vector<std::thread> threads;
  std::atomic<int> started{0}, returned{0};
  for (int row : rows)
    threads.emplace_back([&, row] {
      ++started;
      call(row);
      ++returned;
    });
  while (started < static_cast<int>(rows.size())) std::this_thread::yield();
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time for a leak to show; a gate holds however long
  EXPECT_EQ(returned, 0);
  for (int row : rows)
    EXPECT_EQ(calls[row], before[static_cast<size_t>(row)]) << kRowFacts[row].name << " leaked through";
  shut(0);
  for (auto& thread : threads) thread.join();
  for (int row : rows) EXPECT_EQ(calls[row], before[static_cast<size_t>(row)] + 1) << kRowFacts[row].name;
}

// While submissions are tracked and held, every row still reaches the driver once: here with a driver that knows no
// context, so that nothing can be tracked or held.
TEST_F(Gates, TrackedOrHeldEverySubmissionReachesTheDriverOnce) {
  for (uint32_t bits : {wire::kGateTrack, wire::kGateTrack | wire::kGateHold, wire::kGateTrack | wire::kGateTell}) {
    daemon->page->gate = bits;
    for (int row = 0; row < kRows; ++row) {
      if (kRowFacts[row].cls != Class::submit) continue;
      uint32_t before = calls[row];
      call(row);
      EXPECT_EQ(calls[row], before + 1) << kRowFacts[row].name;
    }
  }
  shut(0);
}

// A driver with a context, as far as tracking needs one. The device address of the activity page is its address here.
int waits, waits_at_call;
std::vector<uint64_t> waited_for;
int a_context(void** context) {
  static char handle;
  *context = &handle;
  return 0;
}
int context_of(void*, void** context) { return a_context(context); }
int device_zero(int* device) { return *device = 0; }
int own_address(uint64_t* device, void* host, unsigned) {
  *device = reinterpret_cast<uint64_t>(host);
  return 0;
}
int no_capture(void*, int* status) { return *status = 0; }
int wait_value(void*, uint64_t address, uint32_t value, unsigned) {
  ++waits;
  waited_for = {address, value};
  return 0;
}
int write_value(void*, uint64_t address, uint32_t value, unsigned) {
  *reinterpret_cast<volatile uint32_t*>(address) = value;
  return 0;
}
int note_call() {
  waits_at_call = waits;
  return 0;
}

// What waits in the caller, since its signature is not declared here; sorted.
const std::vector<std::string> kInCaller = [] {
  std::vector<std::string> names = {
      // graphics, external semaphores
      "cuGLMapBufferObject",
      "cuGLMapBufferObjectAsync",
      "cuGLMapBufferObjectAsync_v2",
      "cuGLMapBufferObjectAsync_v2_ptsz",
      "cuGLMapBufferObject_v2",
      "cuGLMapBufferObject_v2_ptds",
      "cuGLUnmapBufferObject",
      "cuGLUnmapBufferObjectAsync",
      "cuGraphicsMapResources",
      "cuGraphicsMapResources_ptsz",
      "cuGraphicsUnmapResources",
      "cuGraphicsUnmapResources_ptsz",
      "cuSignalExternalSemaphoresAsync",
      "cuSignalExternalSemaphoresAsync_ptsz",
      "cuWaitExternalSemaphoresAsync",
      "cuWaitExternalSemaphoresAsync_ptsz",
      // one launch on several streams
      "cuLaunchCooperativeKernelMultiDevice",
      // entries of the 32-bit interface before CUDA 3.2
      "cuMemcpy2D",
      "cuMemcpy2DAsync",
      "cuMemcpy2DUnaligned",
      "cuMemcpy3D",
      "cuMemcpy3DAsync",
      "cuMemcpyAtoA",
      "cuMemcpyAtoD",
      "cuMemcpyAtoH",
      "cuMemcpyAtoHAsync",
      "cuMemcpyDtoA",
      "cuMemcpyHtoA",
      "cuMemcpyHtoAAsync",
      "cuMemsetD16",
      "cuMemsetD2D16",
      "cuMemsetD2D32",
      "cuMemsetD2D8",
      "cuMemsetD32",
  };
  std::sort(names.begin(), names.end());
  return names;
}();

// Each row in each version and flavour: one wait on the device for this process's `go`, before the driver sees the
// call. A row that is neither held so nor written down as waiting in the caller fails.
TEST_F(Gates, HeldEverySubmissionWaitsOnTheDeviceFirst) {
  answer("cuCtxGetCurrent", a_context);
  answer("cuStreamGetCtx", context_of);
  answer("cuCtxGetDevice", device_zero);
  answer("cuMemHostGetDevicePointer_v2", own_address);
  answer("cuStreamIsCapturing", no_capture);
  answer("cuStreamIsCapturing_ptsz", no_capture);
  answer("cuStreamWaitValue32_v2", wait_value);
  answer("cuStreamWriteValue32_v2", write_value);
  daemon->page->cards[0].window_ns = 1;  // every submission is a batch
  daemon->page->gate = wire::kGateTrack | wire::kGateHold;
  std::vector<std::string> in_caller, on_device;
  for (int row = 0; row < kRows; ++row) {
    if (kRowFacts[row].cls != Class::submit) continue;
    std::string name = kRowFacts[row].name;
    void* before = answers[row];
    if (!before) answers[row] = reinterpret_cast<void*>(note_call);
    waits = 0;
    waits_at_call = -1;
    call(row);
    if (before) waits_at_call = waits;
    answers[row] = before;
    EXPECT_NE(waits_at_call, -1) << name << " did not reach the driver";
    EXPECT_EQ(waits, waits_at_call) << name << " waited after its call";
    if (waits == 0) {
      in_caller.push_back(name);
      continue;
    }
    on_device.push_back(name);
    if (name == "cuStreamWaitValue32_v2") continue;  // the program's own, counted with ours
    EXPECT_EQ(waits, 1) << name;
    // Of the page as this process has mapped it; its beginning is not known here, the place in it is.
    EXPECT_EQ(waited_for[0] % 4096, (offsetof(wire::ActivityPage, devices) + offsetof(wire::ActivityDevice, go)) % 4096)
        << name;
    EXPECT_EQ(waited_for[1], 1u) << name;
  }
  EXPECT_EQ(in_caller, kInCaller);
  EXPECT_GT(on_device.size(), 120u);
  shut(0);
  std::fill(answers, answers + kRows, nullptr);
}

TEST_F(Gates, ShutTheyLetQueriesThrough) {
  shut(1);
  for (int row = 0; row < kRows; ++row) {
    if (kRowFacts[row].cls != Class::none) continue;
    uint32_t before = calls[row];
    call(row);
    EXPECT_EQ(calls[row], before + 1) << kRowFacts[row].name;
  }
  shut(0);
}

// In strict seccomp mode any system call but read, write and exit kills. What is no system call is no allocation of
// pages either, and the library has no malloc to call (abi.guest_files).
TEST_F(Gates, ALaunchMakesNoSystemCall) {
  std::atomic<int> done{0};
  auto launch = reinterpret_cast<Entry>(dlsym(shim, "cuLaunchKernel"));
  auto graph_launch = reinterpret_cast<int (*)(void*, void*)>(dlsym(shim, "cuGraphLaunch"));
  std::thread([&, launch, graph_launch] {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    for (int i = 0; i < 100000; ++i) {
      launch(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
             nullptr);
      graph_launch(nullptr, nullptr);
    }
    done = 1;
    syscall(SYS_exit, 0);  // this thread alone, without the C library's own leave-taking
  }).detach();
  while (!done) std::this_thread::yield();
}

// The helper takes the gate away when the daemon goes: a dead daemon stops nobody.
TEST_F(Gates, ADeadDaemonOpensThem) {
  shut(1);
  delete daemon;
  daemon = nullptr;
  for (int row = 0; row < kRows; ++row)
    if (std::string_view(kRowFacts[row].name) == "cuLaunchKernel") call(row);  // the test's time limit is the watchdog
}

}  // namespace
}  // namespace berth
