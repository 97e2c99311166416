// Every row of class alloc, in every flavour: over quota it answers out of memory, the driver is not called and nothing is
// left on the account; within quota it is on the account, and its release takes it off again. The shim that ships, on the
// simulated GPU, with a daemon that grants or refuses as told. A row without a recipe here fails the test.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "abi/generated/driver_rows.h"
#include "contract/doors.h"
#include "support/fake_daemon.h"
#include "support/shim_entry.h"

namespace berth {
namespace {

using abi::driver::Class;

using namespace test;
FakeDaemon* fake;

class Doors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fake = new test::FakeDaemon;
    setenv("BERTH_DRIVER", "sim", 1);
    shim = dlopen(SHIM_PATH, RTLD_NOW);
    ASSERT_TRUE(shim) << dlerror();
    ASSERT_EQ(D(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(fake->hellos, 1);
    CUcontext context;
    ASSERT_EQ(D(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUmemPoolProps pool{};
    pool.allocType = 1;
    pool.location = {1, 0};
    ASSERT_EQ(D(cuMemPoolCreate)(&held.pool, &pool), CUDA_SUCCESS);
    void* sim = dlopen(SIM_PATH, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_TRUE(sim);
    calls = reinterpret_cast<uint64_t (*)(const char*)>(dlsym(sim, "berth_sim_calls"));
    ASSERT_TRUE(calls);
  }
  static void TearDownTestSuite() { delete fake; }

  static size_t free_bytes() {
    size_t free, total;
    D(cuMemGetInfo_v2)(&free, &total);
    return free;
  }
  // Releases have no answer: a reservation of nothing comes back after them.
  static int64_t account() {
    CUdeviceptr none = 0;
    D(cuMemAlloc_v2)(&none, 4 << 20);
    int64_t now = fake->held - (none ? 4 << 20 : 0);
    if (none) D(cuMemFree_v2)(none);
    return now;
  }
  static uint64_t (*calls)(const char*);
};
uint64_t (*Doors::calls)(const char*);

TEST_F(Doors, EachHasARecipeOrAReason) {
  auto all = doors();
  for (const auto& row : abi::driver::kRowFacts) {
    if (row.cls != Class::alloc) continue;
    std::string body = std::regex_replace(row.name, std::regex("_pt(sz|ds)$"), "");
    EXPECT_TRUE(all.count(body) || kNeverRefused.count(body)) << row.name << " takes memory and nobody tests it";
  }
}

// B16: each over quota returns exactly CUDA_ERROR_OUT_OF_MEMORY.
TEST_F(Doors, B16OverQuotaEachAnswersOutOfMemoryAndLeavesNothing) {
  auto all = doors();
  for (const auto& row : abi::driver::kRowFacts) {
    if (row.cls != Class::alloc) continue;
    auto door = all.find(std::regex_replace(row.name, std::regex("_pt(sz|ds)$"), ""));
    if (door == all.end()) continue;
    int64_t account_before = account();
    size_t free_before = free_bytes();
    uint64_t calls_before = calls(row.name);
    fake->refuse = true;
    EXPECT_EQ(door->second.take(dlsym(shim, row.name)), CUDA_ERROR_OUT_OF_MEMORY) << row.name;
    EXPECT_EQ(calls(row.name), calls_before) << row.name << " reached the driver";
    drop_graph();
    fake->refuse = false;
    EXPECT_EQ(free_bytes(), free_before) << row.name;
    EXPECT_EQ(account(), account_before) << row.name;
  }
}

TEST_F(Doors, WithinQuotaEachIsCountedAndReleased) {
  auto all = doors();
  for (const auto& row : abi::driver::kRowFacts) {
    if (row.cls != Class::alloc) continue;
    auto door = all.find(std::regex_replace(row.name, std::regex("_pt(sz|ds)$"), ""));
    if (door == all.end() || driver_refuses(door->first)) continue;
    int64_t before = account();
    ASSERT_EQ(door->second.take(dlsym(shim, row.name)), CUDA_SUCCESS) << row.name;
    EXPECT_GE(account() - before, 4 << 20) << row.name << " is not on the account";
    door->second.give_back();
    EXPECT_EQ(account(), before) << row.name << " stays on the account";
  }
}

// B4: the quota shrinks below what is used; the views succeed and free is 0.
TEST_F(Doors, B4FreeIsZeroNotHuge) {
  fake->page->devices[0].free_bytes = 0;
  size_t free = 1, total = 0;
  EXPECT_EQ(D(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 0u);
  fake->page->devices[0].free_bytes = wire::kNoQuota;
}

// B10: null outputs are the driver's affair.
TEST_F(Doors, B10NullOutputs) {
  size_t value;
  EXPECT_EQ(D(cuMemGetInfo_v2)(nullptr, &value), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemGetInfo_v2)(&value, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemAlloc_v2)(nullptr, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(D(cuMemCreate)(nullptr, 4096, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

// B10: memory imported by descriptor, seen through a mapped buffer, which cuMemFree frees; charged to its exporter.
TEST_F(Doors, B10AMappedBufferOfImportedMemoryIsFreed) {
  int64_t before = account();
  CUmemAllocationProp properties{1, 1, {1, 0}, nullptr, {}};  // to be exported as a descriptor
  CUmemGenericAllocationHandle handle;
  int fd = -1;
  ASSERT_EQ(D(cuMemCreate)(&handle, 8 << 20, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemExportToShareableHandle)(&fd, handle, 1, 0), CUDA_SUCCESS);
  int64_t exported = account();
  EXPECT_EQ(exported - before, 8 << 20);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
  description.type = 1;
  description.handle.fd = fd;
  description.size = 8 << 20;
  CUexternalMemory memory;
  ASSERT_EQ(D(cuImportExternalMemory)(&memory, &description), CUDA_SUCCESS);
  int64_t imported = account();
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  buffer.size = 4 << 20;
  CUdeviceptr pointer;
  ASSERT_EQ(D(cuExternalMemoryGetMappedBuffer)(&pointer, memory, &buffer), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemsetD8_v2)(pointer, 1, 4 << 20), CUDA_SUCCESS);
  EXPECT_EQ(account(), imported) << "a view takes nothing";
  EXPECT_EQ(D(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(account(), imported);
  EXPECT_EQ(D(cuDestroyExternalMemory)(memory), CUDA_SUCCESS);
  EXPECT_EQ(account(), exported);
  EXPECT_EQ(D(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
}

// B7, B8: ten thousand rounds under a quota that one round fits; a stream-ordered pointer freed by the plain call.
TEST_F(Doors, B7B8ManyRoundsLeaveTheAccountAsItWas) {
  int64_t before = account();
  CUdeviceptr pointer;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_EQ(D(cuMemAllocAsync)(&pointer, 100 << 20, nullptr), CUDA_SUCCESS) << i;
    ASSERT_EQ(D(cuMemFreeAsync)(pointer, nullptr), CUDA_SUCCESS) << i;
    ASSERT_LE(fake->held - before, 256 << 20) << i;
  }
  ASSERT_EQ(D(cuMemAllocAsync)(&pointer, 1 << 20, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(D(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(D(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
}

// B17: no current context is needed for physical memory.
TEST_F(Doors, B17PhysicalMemoryWithoutAContext) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
    CUmemGenericAllocationHandle handle;
    result = D(cuMemCreate)(&handle, 2 << 20, &properties, 0);
    if (!result) D(cuMemRelease)(handle);
  }).join();
  EXPECT_EQ(result, CUDA_SUCCESS);
}

// Up to 1 MiB several share a page, as recorded: the account has whole pages, and most allocations cost no message.
TEST_F(Doors, SmallAllocationsSharePages) {
  int64_t before = account();
  int asked = fake->reserves;
  CUdeviceptr small[1000];
  for (auto& pointer : small) ASSERT_EQ(D(cuMemAlloc_v2)(&pointer, 4096), CUDA_SUCCESS);
  EXPECT_EQ(fake->reserves - asked, 2);
  EXPECT_EQ(account() - before, 4 << 20);
  for (auto& pointer : small) ASSERT_EQ(D(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
}

// A physical handle is charged once and until its last map is gone.
TEST_F(Doors, MapsHoldPhysicalMemory) {
  int64_t before = account();
  CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr range;
  ASSERT_EQ(D(cuMemCreate)(&handle, 8 << 20, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemAddressReserve)(&range, 16 << 20, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemMap)(range, 8 << 20, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(D(cuMemMap)(range + (8 << 20), 8 << 20, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(account() - before, 8 << 20);
  ASSERT_EQ(D(cuMemRelease)(handle), CUDA_SUCCESS);
  EXPECT_EQ(account() - before, 8 << 20);
  ASSERT_EQ(D(cuMemUnmap)(range, 16 << 20), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
  D(cuMemAddressFree)(range, 16 << 20);
}

// B6: a pool of the program's own; B9: memory nodes of a graph are on the account while the driver holds their memory.
TEST_F(Doors, B6AnOwnPoolCountsUpAndDown) {
  int64_t before = account();
  CUdeviceptr pointer;
  ASSERT_EQ(D(cuMemAllocFromPoolAsync)(&pointer, 64 << 20, held.pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account() - before, 64 << 20);
  ASSERT_EQ(D(cuMemFreeAsync)(pointer, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(D(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
}

TEST_F(Doors, B9GraphMemoryIsCountedUntilTrimmed) {
  int64_t before = account();
  held.graph = graph_with_memory();
  ASSERT_EQ(D(cuGraphInstantiateWithFlags)(&held.exec, held.graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(account() - before, 64 << 20) << "reserved before the first launch";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(D(cuGraphLaunch)(held.exec, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(D(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account() - before, 64 << 20);
  drop_graph();
  EXPECT_EQ(account() - before, 64 << 20) << "the driver keeps it";
  ASSERT_EQ(D(cuDeviceGraphMemTrim)(0), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
}

// B15: attributes of managed memory are the driver's own.
TEST_F(Doors, B15ManagedMemoryStaysManaged) {
  CUdeviceptr pointer;
  unsigned managed = 0;
  ASSERT_EQ(D(cuMemAllocManaged)(&pointer, 4 << 20, 1), CUDA_SUCCESS);
  EXPECT_EQ(D(cuPointerGetAttribute)(&managed, 8, pointer), CUDA_SUCCESS);
  EXPECT_EQ(managed, 1u);
  // Asked for several at a time it is the same.
  unsigned many[2] = {0, 0};
  CUpointer_attribute which[2] = {8, 2};
  void* where[2] = {&many[0], &many[1]};
  unsigned type = 0;
  EXPECT_EQ(D(cuPointerGetAttributes)(2, which, where, pointer), CUDA_SUCCESS);
  EXPECT_EQ(D(cuPointerGetAttribute)(&type, 2, pointer), CUDA_SUCCESS);
  EXPECT_EQ(many[0], managed);
  EXPECT_EQ(many[1], type);
  D(cuMemFree_v2)(pointer);
}

// B1: a random mix of all doors. What is on the account is never less than what the card has given, and more only by what
// is known in advance: bounds of arrays and graphs, managed memory not yet touched.
TEST_F(Doors, B1ARandomMixIsNeverUndercounted) {
  void* sim = dlopen(SIM_PATH, RTLD_NOW | RTLD_NOLOAD);
  auto real_info = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(dlsym(sim, "cuMemGetInfo_v2"));
  auto card_free = [&] {
    size_t free = 0, total = 0;
    real_info(&free, &total);
    return static_cast<int64_t>(free);
  };
  int64_t account_before = account(), free_before = card_free();
  uint32_t random = 12345;
  auto next = [&](uint32_t below) { return (random = random * 1664525 + 1013904223) / 65536 % below; };
  struct Piece { int door; CUdeviceptr pointer; CUarray array; CUmemGenericAllocationHandle handle; };
  std::vector<Piece> pieces;
  CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
  for (int step = 0; step < 2000; ++step) {
    if (pieces.size() < 40 && next(2)) {
      Piece piece{static_cast<int>(next(5)), 0, nullptr, 0};
      size_t bytes = (next(64) + 1) * 100000;
      size_t pitch;
      CUDA_ARRAY_DESCRIPTOR array{next(900) + 1, next(900) + 1, 0x20, 4};
      CUresult result = piece.door == 0   ? D(cuMemAlloc_v2)(&piece.pointer, bytes)
                        : piece.door == 1 ? D(cuMemAllocAsync)(&piece.pointer, bytes, nullptr)
                        : piece.door == 2 ? D(cuMemCreate)(&piece.handle, (next(16) + 1) << 21, &properties, 0)
                        : piece.door == 3 ? D(cuArrayCreate_v2)(&piece.array, &array)
                                          : D(cuMemAllocPitch_v2)(&piece.pointer, &pitch, next(5000) + 1, next(2000) + 1, 4);
      ASSERT_EQ(result, CUDA_SUCCESS) << piece.door;
      pieces.push_back(piece);
    } else if (!pieces.empty()) {
      size_t which = next(static_cast<uint32_t>(pieces.size()));
      Piece piece = pieces[which];
      pieces.erase(pieces.begin() + static_cast<long>(which));
      CUresult result = piece.door == 1   ? D(cuMemFreeAsync)(piece.pointer, nullptr)
                        : piece.door == 2 ? D(cuMemRelease)(piece.handle)
                        : piece.door == 3 ? D(cuArrayDestroy)(piece.array)
                                          : D(cuMemFree_v2)(piece.pointer);
      ASSERT_EQ(result, CUDA_SUCCESS) << piece.door;
      if (next(4) == 0) {
        ASSERT_EQ(D(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
      }
    }
    if (step % 20) continue;
    int64_t counted = account() - account_before, taken = free_before - card_free();
    ASSERT_GE(counted + (4 << 20), taken) << "step " << step;  // small ones may lie in more pages than they fill
    ASSERT_LE(counted, taken + (32 << 20) + (4 << 20)) << "step " << step;
  }
  for (const Piece& piece : pieces) {
    if (piece.door == 1) D(cuMemFreeAsync)(piece.pointer, nullptr);
    else if (piece.door == 2) D(cuMemRelease)(piece.handle);
    else if (piece.door == 3) D(cuArrayDestroy)(piece.array);
    else D(cuMemFree_v2)(piece.pointer);
  }
  D(cuCtxSynchronize)();
  EXPECT_EQ(account(), account_before);
  EXPECT_EQ(card_free(), free_before);
}

// A context takes its allocations with it.
TEST_F(Doors, AContextTakesItsMemoryWithIt) {
  int64_t before = account();
  int64_t overhead = fake->overhead;
  CUcontext context;
  ASSERT_EQ(D(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_GT(fake->overhead, overhead);
  CUdeviceptr pointer;
  ASSERT_EQ(D(cuMemAlloc_v2)(&pointer, 8 << 20), CUDA_SUCCESS);
  ASSERT_EQ(D(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
  EXPECT_EQ(account(), before);
  EXPECT_EQ(fake->overhead, overhead);
}

// An unsettled question of ours must not break a capture of theirs (recorded: asking a pool for attributes does).
TEST_F(Doors, CapturesStayWhole) {
  CUstream stream, other;
  D(cuStreamCreate)(&stream, 1);
  D(cuStreamCreate)(&other, 1);
  CUdeviceptr pointer;
  ASSERT_EQ(D(cuMemAllocAsync)(&pointer, 1 << 20, other), CUDA_SUCCESS);  // there is a pool to settle
  for (int mode : {0, 1, 2}) {
    CUgraph graph = nullptr;
    CUdeviceptr inside, outside;
    ASSERT_EQ(D(cuStreamBeginCapture_v2)(stream, mode), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemAllocAsync)(&inside, 1 << 20, stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemAllocAsync)(&outside, 1 << 20, other), CUDA_SUCCESS);
    size_t free, total;
    EXPECT_EQ(D(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemFreeAsync)(inside, stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemFreeAsync)(outside, other), CUDA_SUCCESS);
    EXPECT_EQ(D(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS) << "mode " << mode;
    if (graph) D(cuGraphDestroy)(graph);
  }
  D(cuMemFreeAsync)(pointer, other);
  D(cuCtxSynchronize)();
}

}  // namespace
}  // namespace berth
