// The runtime alias library on a runtime of the tests' own (tests/support/runtime), the shim that ships and two simulated cards,
// with a daemon that gives the process four virtual devices. Run for the runtimes of CUDA 12 and 13.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "abi/generated/runtime_rows.h"
#include "support/fake_daemon.h"
#include "support/runtime/fake_runtime.h"
#include "support/shim_entry.h"

namespace berth {
namespace {

test::FakeDaemon* fake;
void *alias, *runtime;

constexpr int kDevices = 4, kCards[kDevices] = {0, 1, 0, 0};
constexpr size_t kMiB = 1 << 20;
constexpr uint64_t kQuota = 3ull << 30;
constexpr cudaError_t kNoMemory = cudaError_t{2};

// As the dynamic linker resolves a program's calls: the preloaded library first.
template <class F>
F call(const char* name) {
  void* found = dlsym(alias, name);
  if (!found) found = dlsym(runtime, name);
  EXPECT_TRUE(found) << name;
  return reinterpret_cast<F>(found);
}
#define R(name) call<decltype(&::name)>(#name)

bool is_13() {
  int version = 0;
  R(cudaRuntimeGetVersion)(&version);
  return version >= 13000;
}

void use(int device) { EXPECT_EQ(R(cudaSetDevice)(device), cudaSuccess) << device; }
int current() {
  int device = -1;
  EXPECT_EQ(R(cudaGetDevice)(&device), cudaSuccess);
  return device;
}
void* alloc(size_t bytes) {
  void* pointer = nullptr;
  EXPECT_EQ(R(cudaMalloc)(&pointer, bytes), cudaSuccess);
  return pointer;
}
void release(void* pointer) { EXPECT_EQ(R(cudaFree)(pointer), cudaSuccess); }
int device_of(const void* pointer) {
  struct { cudaPointerAttributes told; long more[8]; } room{};  // what 13 has behind
  EXPECT_EQ(R(cudaPointerGetAttributes)(&room.told, pointer), cudaSuccess);
  return room.told.device;
}
int64_t held_on(int device) {  // what the account has once all that was sent has been read
  size_t free, total;
  R(cudaMemGetInfo)(&free, &total);
  return fake->held_on[device];
}

class RuntimeAlias : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("BERTH_SIM_GPUS", "2", 1);
    fake = new test::FakeDaemon;
    fake->quota = kQuota;
    fake->virtual_cards.assign(kCards, kCards + kDevices);
    setenv("BERTH_DRIVER", SIM_PATH, 1);
    test::shim = dlopen(SHIM_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(test::shim) << dlerror();
    alias = dlopen(ALIAS_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(alias) << dlerror();
  }
  void SetUp() override { ASSERT_TRUE(alias); }
};

TEST_F(RuntimeAlias, WithoutARuntimeAnswersAsOneThatCannotStart) {
  int count = 7;
  EXPECT_EQ(reinterpret_cast<decltype(&::cudaGetDeviceCount)>(dlsym(alias, "cudaGetDeviceCount"))(&count), cudaErrorInitializationError);
  EXPECT_EQ(count, 7);
  const char* path = getenv("BERTH_TEST_RUNTIME");
  ASSERT_TRUE(path);
  runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(runtime) << dlerror();
}

TEST_F(RuntimeAlias, DevicesAreCountedAndToldApartAndTheRuntimeSeesTheCards) {
  int count = 0;
  ASSERT_EQ(R(cudaGetDeviceCount)(&count), cudaSuccess);
  EXPECT_EQ(count, kDevices);
  EXPECT_EQ(R(fake_runtime_cards)(), 2);
  std::set<std::string> buses;
  for (int i = 0; i < count; ++i) {
    union { RuntimeDeviceProp12 twelve; RuntimeDeviceProp13 thirteen; char room[4096]; } told;
    ASSERT_EQ(R(cudaGetDeviceProperties)(reinterpret_cast<cudaDeviceProp*>(&told), i), cudaSuccess);
    const CUuuid& uuid = is_13() ? told.thirteen.uuid : told.twelve.uuid;
    int bus = is_13() ? told.thirteen.pciBusID : told.twelve.pciBusID, domain = is_13() ? told.thirteen.pciDomainID : told.twelve.pciDomainID;
    wire::Uuid ours = test::FakeDaemon::virtual_uuid(static_cast<uint32_t>(i));
    EXPECT_EQ(std::memcmp(&uuid, &ours, 16), 0) << i;
    EXPECT_EQ(told.twelve.totalGlobalMem, kQuota);
    EXPECT_EQ((std::vector{domain, bus}), (std::vector{0xbe00, i + 1}));
    EXPECT_STRNE(told.twelve.name, "");
    int value = -1;
    EXPECT_EQ(R(cudaDeviceGetAttribute)(&value, 33, i), cudaSuccess);
    EXPECT_EQ(value, i + 1);
    EXPECT_EQ(R(cudaDeviceGetAttribute)(&value, 50, i), cudaSuccess);
    EXPECT_EQ(value, 0xbe00);
    EXPECT_EQ(R(cudaDeviceGetAttribute)(&value, 16, i), cudaSuccess);  // multiprocessors: the card's
    EXPECT_GT(value, 0);
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[i]);
    char text[32] = "", small[6] = "";
    EXPECT_EQ(R(cudaDeviceGetPCIBusId)(text, sizeof text, i), cudaSuccess);
    EXPECT_EQ(std::string(text), "BE00:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(R(cudaDeviceGetPCIBusId)(small, sizeof small, i), cudaSuccess);
    EXPECT_EQ(std::string(small), std::string(text).substr(0, 5));
    int found = -1;
    EXPECT_EQ(R(cudaDeviceGetByPCIBusId)(&found, text), cudaSuccess);
    EXPECT_EQ(found, i);
    buses.insert(text);
    unsigned char seen[16];
    R(fake_runtime_uuid)(kCards[i], seen);
    EXPECT_NE(std::memcmp(seen, &ours, 16), 0);
  }
  EXPECT_EQ(buses.size(), size_t{kDevices});
  int found;
  EXPECT_EQ(R(cudaDeviceGetByPCIBusId)(&found, "0000:01:00.0"), cudaErrorInvalidDevice);  // a card's
  EXPECT_EQ(R(cudaDeviceGetByPCIBusId)(&found, "x"), cudaErrorInvalidValue);
}

TEST_F(RuntimeAlias, EachThreadHasADeviceOfItsOwn) {
  EXPECT_EQ(current(), 0);
  use(3);
  int before = -1, after = -1, in_others = -1;
  std::thread([&] {
    before = current();
    use(1);
    after = current();
    std::thread([&] { in_others = current(); }).join();
  }).join();
  EXPECT_EQ((std::vector{before, after, in_others, current()}), (std::vector{0, 1, 0, 3}));
  use(0);
}

TEST_F(RuntimeAlias, NumbersThatAreNoneGetTheRuntimesOwnError) {
  use(2);
  for (int bad : {-1, kDevices, 7777}) {
    EXPECT_EQ(R(cudaSetDevice)(bad), cudaErrorInvalidDevice) << bad;
    int value;
    char text[32];
    EXPECT_EQ(R(cudaDeviceGetAttribute)(&value, 16, bad), cudaErrorInvalidDevice) << bad;
    EXPECT_EQ(R(cudaDeviceGetPCIBusId)(text, sizeof text, bad), cudaErrorInvalidDevice) << bad;
    EXPECT_EQ(R(cudaInitDevice)(bad, 0, 0), cudaErrorInvalidDevice) << bad;
    EXPECT_EQ(R(cudaDeviceCanAccessPeer)(&value, 0, bad), cudaErrorInvalidDevice) << bad;
    EXPECT_EQ(R(cudaDeviceEnablePeerAccess)(bad, 0), cudaErrorInvalidDevice) << bad;
    EXPECT_EQ(R(cudaDeviceGraphMemTrim)(bad), cudaErrorInvalidDevice) << bad;
    cudaMemPool_t pool;
    EXPECT_EQ(R(cudaDeviceGetDefaultMemPool)(&pool, bad), cudaErrorInvalidDevice) << bad;
  }
  EXPECT_EQ(current(), 2);
  use(0);
}

TEST_F(RuntimeAlias, MemoryIsOnTheAccountOfTheCurrentDevice) {
  void* pointers[kDevices];
  for (int i = 0; i < kDevices; ++i) {
    use(i);
    pointers[i] = alloc((16 + 2 * static_cast<size_t>(i)) * kMiB);
  }
  for (int i = 0; i < kDevices; ++i) {
    EXPECT_EQ(held_on(i), static_cast<int64_t>((16 + 2 * i) * kMiB)) << i;
    EXPECT_EQ(device_of(pointers[i]), i);
    size_t free = 0, total = 0;
    use(i);
    EXPECT_EQ(R(cudaMemGetInfo)(&free, &total), cudaSuccess);
    EXPECT_EQ(total, kQuota);
  }
  int host = 0;
  EXPECT_LT(device_of(&host), 0);
  fake->refuse = true;
  void* more = nullptr;
  EXPECT_EQ(R(cudaMalloc)(&more, 8 * kMiB), kNoMemory);
  fake->refuse = false;
  use(1);  // freed on whatever device is current
  for (void* pointer : pointers) release(pointer);
  for (int i = 0; i < kDevices; ++i) EXPECT_EQ(held_on(i), 0) << i;
}

TEST_F(RuntimeAlias, AThreadThatHasChosenNoneUsesTheFirst) {
  use(3);
  void *plain = nullptr, *ordered = nullptr;
  size_t free = 0, total = 0;
  int device = -1;
  cudaStream_t stream = nullptr;
  int64_t before = held_on(0);
  std::thread([&] { plain = alloc(8 * kMiB); }).join();
  EXPECT_EQ(held_on(0), before + int64_t(8 * kMiB));
  EXPECT_EQ(device_of(plain), 0);
  std::thread([&] { EXPECT_EQ(R(cudaMemGetInfo)(&free, &total), cudaSuccess); }).join();
  EXPECT_EQ(total, kQuota);
  std::thread([&] { EXPECT_EQ(R(cudaStreamCreate)(&stream), cudaSuccess); }).join();
  EXPECT_EQ(R(cudaStreamGetDevice)(stream, &device), cudaSuccess);
  EXPECT_EQ(device, 0);
  std::thread([&] { EXPECT_EQ(R(cudaMallocAsync)(&ordered, 8 * kMiB, nullptr), cudaSuccess); }).join();
  EXPECT_EQ(device_of(ordered), 0);
  EXPECT_EQ(held_on(3), 0);
  EXPECT_EQ(R(cudaFreeAsync)(ordered, nullptr), cudaSuccess);
  EXPECT_EQ(R(cudaStreamDestroy)(stream), cudaSuccess);
  release(plain);
}

TEST_F(RuntimeAlias, StreamsAndPoolsAreTheirDevices) {
  for (int i : {3, 0, 1, 2}) {
    use(i);
    cudaStream_t stream;
    ASSERT_EQ(R(cudaStreamCreate)(&stream), cudaSuccess);
    int told = -1;
    EXPECT_EQ(R(cudaStreamGetDevice)(nullptr, &told), cudaSuccess);
    EXPECT_EQ(told, i);
    use((i + 1) % kDevices);
    EXPECT_EQ(R(cudaStreamGetDevice)(stream, &told), cudaSuccess);
    EXPECT_EQ(told, i);
    use(i);
    void* pointer = nullptr;
    ASSERT_EQ(R(cudaMallocAsync)(&pointer, 40 * kMiB, stream), cudaSuccess);
    EXPECT_GE(held_on(i), int64_t(40 * kMiB)) << i;
    EXPECT_EQ(device_of(pointer), i);
    EXPECT_EQ(R(cudaFreeAsync)(pointer, stream), cudaSuccess);
    cudaMemPool_t pool, present;
    EXPECT_EQ(R(cudaDeviceGetDefaultMemPool)(&pool, i), cudaSuccess);
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[i]);
    int64_t before = held_on(i);
    use((i + 1) % kDevices);  // a pool is the device's that is named, and its memory, too
    cudaMemPoolProps properties{1, 0, {1, i}, nullptr, 0, 0, {}};
    ASSERT_EQ(R(cudaMemPoolCreate)(&pool, &properties), cudaSuccess);
    EXPECT_EQ(properties.location.id, i);
    EXPECT_EQ(R(cudaDeviceSetMemPool)(i, pool), cudaSuccess);
    EXPECT_EQ(R(cudaDeviceGetMemPool)(&present, i), cudaSuccess);
    EXPECT_EQ(present, pool);
    ASSERT_EQ(R(cudaMallocFromPoolAsync)(&pointer, 40 * kMiB, pool, stream), cudaSuccess);
    EXPECT_GE(held_on(i), before + int64_t(40 * kMiB)) << i;
    EXPECT_EQ(device_of(pointer), i);
    cudaMemAccessDesc everybody[kDevices];
    for (int j = 0; j < kDevices; ++j) everybody[j] = {{1, j}, 3};
    EXPECT_EQ(R(cudaMemPoolSetAccess)(pool, everybody, kDevices), cudaSuccess);
    cudaMemLocation location{1, i};
    cudaMemAccessFlags flags = 0;
    EXPECT_EQ(R(cudaMemPoolGetAccess)(&flags, pool, &location), cudaSuccess);
    EXPECT_EQ(flags, 3);
    EXPECT_EQ(R(cudaFreeAsync)(pointer, stream), cudaSuccess);
    EXPECT_EQ(R(cudaStreamSynchronize)(stream), cudaSuccess);
    EXPECT_EQ(R(cudaMemPoolDestroy)(pool), cudaSuccess);
    EXPECT_EQ(R(cudaStreamDestroy)(stream), cudaSuccess);
  }
}

TEST_F(RuntimeAlias, PeersAnswerConsistentlyAndCopy) {
  for (int from = 0; from < kDevices; ++from)
    for (int to = 0; to < kDevices; ++to) {
      int can = -1, access = -1;
      EXPECT_EQ(R(cudaDeviceCanAccessPeer)(&can, from, to), cudaSuccess);
      EXPECT_EQ(can, from != to) << from << " " << to;
      if (from == to) continue;
      EXPECT_EQ(R(cudaDeviceGetP2PAttribute)(&access, 2, from, to), cudaSuccess);
      EXPECT_EQ(access, 1);
      use(from);
      void* source = alloc(kMiB);
      EXPECT_EQ(R(cudaMemset)(source, 16 * from + to, kMiB), cudaSuccess);
      EXPECT_EQ(R(cudaDeviceEnablePeerAccess)(to, 0), cudaSuccess) << from << " " << to;
      EXPECT_EQ(R(cudaDeviceEnablePeerAccess)(to, 0), cudaErrorPeerAccessAlreadyEnabled);
      use(to);
      void* target = alloc(kMiB);
      EXPECT_EQ(R(cudaMemcpyPeer)(target, to, source, from, kMiB), cudaSuccess);
      EXPECT_EQ((std::vector{R(fake_runtime_handed)(1), R(fake_runtime_handed)(0)}), (std::vector{kCards[to], kCards[from]}));
      unsigned char byte = 0;
      EXPECT_EQ(R(cudaMemcpy)(&byte, static_cast<char*>(target) + kMiB - 1, 1, 2), cudaSuccess);
      EXPECT_EQ(byte, 16 * from + to);
      release(target), release(source);
      cudaMemcpy3DPeerParms copy{};
      copy.srcDevice = from, copy.dstDevice = to;
      EXPECT_EQ(R(cudaMemcpy3DPeer)(&copy), cudaSuccess);
      EXPECT_EQ((std::vector{R(fake_runtime_handed)(1), R(fake_runtime_handed)(0)}), (std::vector{kCards[from], kCards[to]}));
      EXPECT_EQ((std::vector{copy.srcDevice, copy.dstDevice}), (std::vector{from, to}));
      use(from);
      EXPECT_EQ(R(cudaDeviceDisablePeerAccess)(to), cudaSuccess);
      EXPECT_EQ(R(cudaDeviceDisablePeerAccess)(to), cudaErrorPeerAccessNotEnabled);
    }
  EXPECT_NE(R(cudaDeviceEnablePeerAccess)(current(), 0), cudaSuccess);  // the runtime's own answer
}

TEST_F(RuntimeAlias, PlacesOfManagedMemory) {
  use(0);
  void* pointer = nullptr;
  ASSERT_EQ(R(cudaMallocManaged)(&pointer, 4 * kMiB, 1), cudaSuccess);
  cudaStream_t stream;
  ASSERT_EQ(R(cudaStreamCreate)(&stream), cudaSuccess);
  for (int device : {3, 1, -1}) {
    cudaMemLocation location{device < 0 ? 2 : 1, device < 0 ? 0 : device};
    RuntimePlace place = is_13() ? __builtin_bit_cast(RuntimePlace, location) : 0xdead00000000 | static_cast<uint32_t>(device);
    uint64_t fourth = is_13() ? 0 : reinterpret_cast<uint64_t>(stream);
    EXPECT_EQ(R(cudaMemPrefetchAsync)(pointer, 4 * kMiB, place, fourth, stream), cudaSuccess) << device;
    if (device < 0) continue;
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[device]);
    EXPECT_EQ(R(cudaMemAdvise)(pointer, 4 * kMiB, 3, place), cudaSuccess) << device;
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[device]);
  }
  EXPECT_EQ(R(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(R(cudaStreamDestroy)(stream), cudaSuccess);
  release(pointer);
}

TEST_F(RuntimeAlias, NodesAndHintsNameVirtualDevices) {
  use(0);
  cudaGraph_t graph;
  ASSERT_EQ(R(cudaGraphCreate)(&graph, 0), cudaSuccess);
  cudaMemAccessDesc everybody[kDevices];
  for (int i = 0; i < kDevices; ++i) everybody[i] = {{1, i}, 3};
  for (int i = 0; i < kDevices; ++i) {
    cudaMemAllocNodeParams params{{1, 0, {1, i}, nullptr, 0, 0, {}}, everybody, kDevices, 4 * kMiB, 0}, told{};
    cudaGraphNodeParams any{};
    any.type = 10;
    any.alloc = params;
    cudaGraphNode_t nodes[2];
    EXPECT_EQ(R(cudaGraphAddMemAllocNode)(&nodes[0], graph, nullptr, 0, &params), cudaSuccess) << i;
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[i]);
    EXPECT_NE(params.dptr, 0u);
    if (is_13()) EXPECT_EQ(R(cudaGraphAddNode)(&nodes[1], graph, nullptr, nullptr, 0, &any), cudaSuccess);
    else EXPECT_EQ(R(cudaGraphAddNode)(&nodes[1], graph, nullptr, nullptr, reinterpret_cast<size_t>(&any), nullptr), cudaSuccess);
    EXPECT_EQ(R(fake_runtime_handed)(0), kCards[i]);
    EXPECT_NE(any.alloc.dptr, 0u);
    for (cudaGraphNode_t node : nodes) {
      EXPECT_EQ(R(cudaGraphMemAllocNodeGetParams)(node, &told), cudaSuccess);
      EXPECT_EQ(told.poolProps.location.id, i);
    }
  }
  EXPECT_EQ(R(cudaGraphDestroy)(graph), cudaSuccess);
  cudaStream_t stream;
  ASSERT_EQ(R(cudaStreamCreate)(&stream), cudaSuccess);
  void *to = alloc(kMiB), *from = alloc(kMiB);
  const void* sources[] = {from};
  size_t bytes = kMiB, index = 0;
  cudaMemcpyAttributes hints{1, {1, 3}, {1, 2}, 0};
  auto last = reinterpret_cast<uint64_t>(stream);
  EXPECT_EQ(R(cudaMemcpyBatchAsync)(&to, sources, &bytes, 1, &hints, &index, 1, is_13() ? last : 0, is_13() ? 0 : last), cudaSuccess);
  EXPECT_EQ((std::vector{hints.srcLocHint.id, hints.dstLocHint.id}), (std::vector{3, 2}));
  EXPECT_EQ(R(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(R(cudaStreamDestroy)(stream), cudaSuccess);
  release(to), release(from);
}

TEST_F(RuntimeAlias, AListOfValidDevicesNamesTheFirstOfNewThreads) {
  int valid[] = {3, 2}, none = 0;
  EXPECT_EQ(R(cudaSetValidDevices)(valid, 2), cudaSuccess);
  std::thread([&] { none = current(); }).join();
  EXPECT_EQ(none, 3);
  EXPECT_EQ(R(cudaSetValidDevices)(nullptr, 0), cudaSuccess);
  std::thread([&] { none = current(); }).join();
  EXPECT_EQ(none, 0);
  int bad[] = {0, kDevices};
  EXPECT_EQ(R(cudaSetValidDevices)(bad, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(R(cudaChooseDevice)(&none, nullptr), cudaSuccess);
  EXPECT_EQ(none, 1);  // the runtime has named the second card
}

TEST_F(RuntimeAlias, AResetFreesOnlyItsOwn) {
  use(0);
  void* kept = alloc(8 * kMiB);
  int64_t before[] = {held_on(0), held_on(3)};
  use(3);
  EXPECT_EQ(R(cudaDeviceEnablePeerAccess)(0, 0), cudaSuccess);
  alloc(8 * kMiB), alloc(100);
  cudaArray_t array;
  EXPECT_EQ(R(cudaMallocArray)(&array, nullptr, 1024, 1024, 0), cudaSuccess);
  EXPECT_GT(held_on(3), before[1] + int64_t(8 * kMiB));
  EXPECT_EQ(R(cudaDeviceReset)(), cudaSuccess);
  EXPECT_EQ(held_on(3), before[1]);
  EXPECT_EQ(held_on(0), before[0]);
  EXPECT_EQ(current(), 3);
  EXPECT_EQ(R(cudaMemset)(kept, 1, kMiB), cudaSuccess);
  EXPECT_EQ(R(cudaDeviceEnablePeerAccess)(0, 0), cudaSuccess);  // forgotten, so it can be enabled again
  use(0);
  release(kept);
}

// Every exported function leads to the runtime loaded, or says that it has none.
TEST_F(RuntimeAlias, WhatTheRuntimeLacksIsNotSupported) {
  ASSERT_FALSE(dlsym(runtime, "cudaGreenCtxCreate"));
  cudaExecutionContext_t context;
  EXPECT_EQ(R(cudaGreenCtxCreate)(&context, nullptr, 1, 0), cudaErrorNotSupported);
  for (const char* name : abi::runtime::kNames) EXPECT_TRUE(dlsym(alias, name)) << name;
  for (const char* pass : {"cudaFree", "cudaMallocHost", "cudaLaunchKernel", "cudaGetDriverEntryPoint", "cudaRuntimeGetVersion"})
    EXPECT_FALSE(dlsym(alias, pass)) << pass;
}

}  // namespace
}  // namespace berth
