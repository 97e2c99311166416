// Every submission of the list, in all its versions and flavours, waits while the gate is shut and reaches the driver once it
// is open. The driver is the recorder (tests/abi/recorder): every name, counting calls. The shim is the file that ships.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <chrono>
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

  static test::FakeDaemon* daemon;
  static void* shim;
  static std::atomic<uint32_t>* calls;
};
test::FakeDaemon* Gates::daemon;
void* Gates::shim;
std::atomic<uint32_t>* Gates::calls;

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
  for (int row : rows) EXPECT_EQ(calls[row], before[static_cast<size_t>(row)]) << kRowFacts[row].name << " leaked through";
  shut(0);
  for (auto& thread : threads) thread.join();
  for (int row : rows) EXPECT_EQ(calls[row], before[static_cast<size_t>(row)] + 1) << kRowFacts[row].name;
}

// While submissions are tracked and held, every row still reaches the driver once: here with a driver that knows no context,
// so that nothing can be tracked or held.
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

// In strict seccomp mode any system call but read, write and exit kills. What is no system call is no allocation of pages
// either, and the library has no malloc to call (abi.guest_files).
TEST_F(Gates, ALaunchMakesNoSystemCall) {
  std::atomic<int> done{0};
  auto launch = reinterpret_cast<Entry>(dlsym(shim, "cuLaunchKernel"));
  auto graph_launch = reinterpret_cast<int (*)(void*, void*)>(dlsym(shim, "cuGraphLaunch"));
  std::thread([&, launch, graph_launch] {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    for (int i = 0; i < 100000; ++i) {
      launch(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
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
