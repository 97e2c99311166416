// Virtual devices by the driver interface: the shim that ships on two simulated cards, with a daemon that gives the process
// four of them. The tests run in their order: the last ones meet a CUDA runtime, after which there is no way back.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "abi/driver_api.h"
#include "abi/generated/driver_rows.h"
#include "shim/runtime_view.h"
#include "support/fake_daemon.h"
#include "support/shim_entry.h"

namespace berth {
namespace {

using test::shim;
test::FakeDaemon* fake;

constexpr int kDevices = 4, kCards[kDevices] = {0, 1, 0, 0};
constexpr size_t kMiB = 1 << 20;
constexpr uint64_t kQuota = 3ull << 30;

CUcontext primary[kDevices];

CUcontext enter(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(D(cuDevicePrimaryCtxRetain)(&context, device), CUDA_SUCCESS);
  EXPECT_EQ(D(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  return context;
}
void leave(int device) { EXPECT_EQ(D(cuDevicePrimaryCtxRelease_v2)(device), CUDA_SUCCESS); }

CUdeviceptr alloc(size_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(D(cuMemAlloc_v2)(&pointer, bytes), CUDA_SUCCESS);
  return pointer;
}

int64_t held_on(int device) {  // what the account has once all that was sent has been read
  size_t free, total;
  D(cuMemGetInfo_v2)(&free, &total);
  return fake->held_on[device];
}

int current_device() {
  CUdevice device = -1;
  EXPECT_EQ(D(cuCtxGetDevice)(&device), CUDA_SUCCESS);
  return device;
}

int device_of(CUdeviceptr pointer) {
  int device = -1;
  EXPECT_EQ(D(cuPointerGetAttribute)(&device, 9, pointer), CUDA_SUCCESS);
  return device;
}

class VirtualDevices : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("BERTH_SIM_GPUS", "2", 1);
    fake = new test::FakeDaemon;
    fake->quota = kQuota;
    fake->virtual_cards.assign(kCards, kCards + kDevices);
    setenv("BERTH_DRIVER", SIM_PATH, 1);
    shim = dlopen(SHIM_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(shim) << dlerror();
    ASSERT_EQ(D(cuInit)(0), CUDA_SUCCESS);
  }
};

TEST_F(VirtualDevices, AreCountedAndToldApartByEveryName) {
  int count = 0;
  ASSERT_EQ(D(cuDeviceGetCount)(&count), CUDA_SUCCESS);
  ASSERT_EQ(count, kDevices);
  std::set<std::string> bus_ids;
  for (int i = 0; i < count; ++i) {
    CUdevice device = -1;
    EXPECT_EQ(D(cuDeviceGet)(&device, i), CUDA_SUCCESS);
    EXPECT_EQ(device, i);
    wire::Uuid expected = test::FakeDaemon::virtual_uuid(static_cast<uint32_t>(i));
    CUuuid uuid;
    for (auto get : {D(cuDeviceGetUuid), D(cuDeviceGetUuid_v2)}) {
      EXPECT_EQ(get(&uuid, device), CUDA_SUCCESS);
      EXPECT_EQ(std::memcmp(&uuid, &expected, 16), 0);
    }
    char name[64] = "", bus_id[16] = "", small[6] = "";
    EXPECT_EQ(D(cuDeviceGetName)(name, sizeof name, device), CUDA_SUCCESS);
    EXPECT_STRNE(name, "");
    EXPECT_EQ(D(cuDeviceGetPCIBusId)(bus_id, sizeof bus_id, device), CUDA_SUCCESS);
    EXPECT_EQ(std::string(bus_id), "BE00:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(D(cuDeviceGetPCIBusId)(small, sizeof small, device), CUDA_SUCCESS);
    EXPECT_EQ(std::string(small), std::string(bus_id).substr(0, 5));
    bus_ids.insert(bus_id);
    for (std::string text : {std::string(bus_id), "be00:0" + std::to_string(i + 1) + ":00.0", "0000" + std::string(bus_id)}) {
      CUdevice found = -1;
      EXPECT_EQ(D(cuDeviceGetByPCIBusId)(&found, text.c_str()), CUDA_SUCCESS) << text;
      EXPECT_EQ(found, i) << text;
    }
    int domain = 0, bus = 0, slot = -1;
    EXPECT_EQ(D(cuDeviceGetAttribute)(&bus, 33, device), CUDA_SUCCESS);
    EXPECT_EQ(D(cuDeviceGetAttribute)(&slot, 34, device), CUDA_SUCCESS);
    EXPECT_EQ(D(cuDeviceGetAttribute)(&domain, 50, device), CUDA_SUCCESS);
    EXPECT_EQ((std::vector{domain, bus, slot}), (std::vector{0xbe00, i + 1, 0}));
    size_t total = 0;
    EXPECT_EQ(D(cuDeviceTotalMem_v2)(&total, device), CUDA_SUCCESS);
    EXPECT_EQ(total, kQuota);
  }
  EXPECT_EQ(bus_ids.size(), size_t{kDevices});
}

TEST_F(VirtualDevices, NumbersThatAreNoneGetTheDriversOwnAnswer) {
  for (int bad : {-1, kDevices, 7777}) {
    CUdevice device = -7;
    size_t total;
    char name[16];
    CUcontext context;
    EXPECT_EQ(D(cuDeviceGet)(&device, bad), CUDA_ERROR_INVALID_DEVICE) << bad;
    EXPECT_EQ(D(cuDeviceTotalMem_v2)(&total, bad), CUDA_ERROR_INVALID_DEVICE) << bad;
    EXPECT_EQ(D(cuDeviceGetName)(name, sizeof name, bad), CUDA_ERROR_INVALID_DEVICE) << bad;
    EXPECT_EQ(D(cuDevicePrimaryCtxRetain)(&context, bad), CUDA_ERROR_INVALID_DEVICE) << bad;
    EXPECT_EQ(D(cuCtxCreate_v2)(&context, 0, bad), CUDA_ERROR_INVALID_DEVICE) << bad;
  }
  CUdevice device;
  EXPECT_EQ(D(cuDeviceGetByPCIBusId)(&device, "BE00:09:00.0"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(D(cuDeviceGetByPCIBusId)(&device, "0000:01:00.0"), CUDA_ERROR_INVALID_DEVICE);  // a card's
}

TEST_F(VirtualDevices, EachHasAPrimaryContextOfItsOwnCountedAsTheDriverCounts) {
  for (int i = 0; i < kDevices; ++i) {
    unsigned flags = 9;
    int active = 9;
    EXPECT_EQ(D(cuDevicePrimaryCtxGetState)(i, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(active, 0) << i;
    EXPECT_EQ(D(cuDevicePrimaryCtxRelease_v2)(i), CUDA_ERROR_INVALID_CONTEXT) << i;
    EXPECT_EQ(D(cuDevicePrimaryCtxSetFlags_v2)(i, 4), CUDA_SUCCESS);
    primary[i] = enter(i);
    EXPECT_EQ(current_device(), i);
    EXPECT_EQ(D(cuDevicePrimaryCtxGetState)(i, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ((std::vector{static_cast<int>(flags), active}), (std::vector{4, 1})) << i;
    CUcontext again;
    EXPECT_EQ(D(cuDevicePrimaryCtxRetain)(&again, i), CUDA_SUCCESS);
    EXPECT_EQ(again, primary[i]);
    leave(i);
    CUdevice device = -1;
    EXPECT_EQ(D(cuCtxGetDevice_v2)(&device, primary[i]), CUDA_SUCCESS);
    EXPECT_EQ(device, i);
    CUstream stream;
    EXPECT_EQ(D(cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    for (CUstream one : {stream, CUstream(nullptr)}) {
      EXPECT_EQ(D(cuStreamGetDevice)(one, &device), CUDA_SUCCESS);
      EXPECT_EQ(device, i);
    }
    EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(std::set<CUcontext>(primary, primary + kDevices).size(), size_t{kDevices});
  EXPECT_EQ(D(cuCtxDestroy_v2)(primary[2]), D(cuCtxDestroy_v2)(primary[0]));  // of the driver's own and of ours
}

TEST_F(VirtualDevices, MemoryIsOnTheAccountOfItsOwnDevice) {
  CUdeviceptr pointers[kDevices];
  for (int i = 0; i < kDevices; ++i) {
    D(cuCtxSetCurrent)(primary[i]);
    pointers[i] = alloc((16 + 2 * static_cast<size_t>(i)) * kMiB);
    EXPECT_EQ(device_of(pointers[i]), i);
  }
  for (int i = 0; i < kDevices; ++i) EXPECT_EQ(held_on(i), (16 + 2 * i) * static_cast<int64_t>(kMiB)) << i;
  // Made in a context of the program's own, on whatever device is current when it is freed.
  CUcontext own;
  ASSERT_EQ(D(cuCtxCreate_v2)(&own, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(current_device(), 2);
  CUdeviceptr more = alloc(32 * kMiB);
  EXPECT_EQ(held_on(2), int64_t(52 * kMiB));
  D(cuCtxSetCurrent)(primary[1]);
  EXPECT_EQ(D(cuMemFree_v2)(more), CUDA_SUCCESS);
  EXPECT_EQ(held_on(2), int64_t(20 * kMiB));
  EXPECT_EQ(D(cuCtxDestroy_v2)(own), CUDA_SUCCESS);
  for (CUdeviceptr pointer : pointers) EXPECT_EQ(D(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  for (int i = 0; i < kDevices; ++i) EXPECT_EQ(held_on(i), 0) << i;
}

TEST_F(VirtualDevices, AResetFreesOnlyItsOwn) {
  D(cuCtxSetCurrent)(primary[0]);
  CUdeviceptr first = alloc(kMiB * 8);
  D(cuCtxSetCurrent)(primary[3]);
  alloc(kMiB * 8);
  EXPECT_EQ(held_on(3), int64_t(8 * kMiB));
  EXPECT_EQ(D(cuDevicePrimaryCtxReset_v2)(3), CUDA_SUCCESS);
  D(cuCtxSetCurrent)(primary[0]);
  EXPECT_EQ(held_on(3), 0);
  EXPECT_EQ(held_on(0), int64_t(8 * kMiB));
  EXPECT_EQ(D(cuMemsetD8_v2)(first, 7, kMiB), CUDA_SUCCESS);
  unsigned char byte = 0;
  EXPECT_EQ(D(cuMemcpyDtoH_v2)(&byte, first + kMiB - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 7);
  EXPECT_EQ(D(cuMemFree_v2)(first), CUDA_SUCCESS);
  unsigned flags;
  int active = 1;
  EXPECT_EQ(D(cuDevicePrimaryCtxGetState)(3, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  primary[3] = enter(3);
}

TEST_F(VirtualDevices, CopyAmongEachOtherAndAnswerConsistentlyAboutPeers) {
  for (int from = 0; from < kDevices; ++from)
    for (int to = 0; to < kDevices; ++to) {
      int can = -1, access = -1;
      EXPECT_EQ(D(cuDeviceCanAccessPeer)(&can, from, to), CUDA_SUCCESS);
      EXPECT_EQ(can, from != to) << from << " " << to;
      CUresult asked = D(cuDeviceGetP2PAttribute)(&access, 2, from, to);
      EXPECT_EQ(asked, from == to ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
      if (from == to) continue;
      EXPECT_EQ(access, 1);
      D(cuCtxSetCurrent)(primary[from]);
      EXPECT_EQ(D(cuCtxEnablePeerAccess)(primary[to], 0), CUDA_SUCCESS) << from << " " << to;
      EXPECT_EQ(D(cuCtxEnablePeerAccess)(primary[to], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
      CUdeviceptr source = alloc(kMiB);
      EXPECT_EQ(D(cuMemsetD8_v2)(source, static_cast<unsigned char>(16 * from + to), kMiB), CUDA_SUCCESS);
      D(cuCtxSetCurrent)(primary[to]);
      CUdeviceptr target = alloc(kMiB);
      EXPECT_EQ(D(cuMemcpyPeer)(target, primary[to], source, primary[from], kMiB), CUDA_SUCCESS);
      unsigned char byte = 0;
      EXPECT_EQ(D(cuMemcpyDtoH_v2)(&byte, target + kMiB - 1, 1), CUDA_SUCCESS);
      EXPECT_EQ(byte, 16 * from + to);
      EXPECT_EQ(D(cuMemFree_v2)(target), CUDA_SUCCESS);
      EXPECT_EQ(D(cuMemFree_v2)(source), CUDA_SUCCESS);
      D(cuCtxSetCurrent)(primary[from]);
      EXPECT_EQ(D(cuCtxDisablePeerAccess)(primary[to]), CUDA_SUCCESS);
      EXPECT_EQ(D(cuCtxDisablePeerAccess)(primary[to]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
  D(cuCtxSetCurrent)(primary[0]);
  EXPECT_NE(D(cuCtxEnablePeerAccess)(primary[0], 0), CUDA_SUCCESS);
}

TEST_F(VirtualDevices, HavePoolsOfTheirOwn) {
  std::set<CUmemoryPool> pools;
  for (int i = 0; i < kDevices; ++i) {
    CUmemoryPool pool, present;
    ASSERT_EQ(D(cuDeviceGetDefaultMemPool)(&pool, i), CUDA_SUCCESS);
    ASSERT_EQ(D(cuDeviceGetMemPool)(&present, i), CUDA_SUCCESS);
    EXPECT_EQ(present, pool);
    pools.insert(pool);
    D(cuCtxSetCurrent)(primary[i]);
    CUstream stream;
    ASSERT_EQ(D(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(D(cuMemAllocAsync)(&pointer, 40 * kMiB, stream), CUDA_SUCCESS);
    EXPECT_GE(held_on(i), int64_t(40 * kMiB)) << i;
    EXPECT_EQ(device_of(pointer), i);
    for (int other = 0; other < kDevices; ++other)
      if (other != i) {
        EXPECT_EQ(held_on(other), 0) << i << " " << other;
      }
    EXPECT_EQ(D(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    EXPECT_EQ(held_on(i), 0) << i;
    EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    CUmemPoolProps properties{1, 0, {1, i}, nullptr, 0, 0, {}};
    CUmemoryPool made;
    ASSERT_EQ(D(cuMemPoolCreate)(&made, &properties), CUDA_SUCCESS);
    EXPECT_EQ(D(cuDeviceSetMemPool)(i, made), CUDA_SUCCESS);
    EXPECT_EQ(D(cuDeviceGetMemPool)(&present, i), CUDA_SUCCESS);
    EXPECT_EQ(present, made);
    EXPECT_EQ(D(cuDeviceSetMemPool)(i, pool), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemPoolDestroy)(made), CUDA_SUCCESS);
  }
  EXPECT_EQ(pools.size(), size_t{kDevices});
}

TEST_F(VirtualDevices, HavePhysicalMemoryOfTheirOwn) {
  D(cuCtxSetCurrent)(primary[0]);
  for (int i = 0; i < kDevices; ++i) {
    CUmemAllocationProp properties{1, 0, {1, i}, nullptr, {}}, told{};
    size_t granularity = 0;
    EXPECT_EQ(D(cuMemGetAllocationGranularity)(&granularity, &properties, 0), CUDA_SUCCESS);
    CUmemGenericAllocationHandle handle;
    ASSERT_EQ(D(cuMemCreate)(&handle, 8 * kMiB, &properties, 0), CUDA_SUCCESS) << i;
    EXPECT_EQ(held_on(i), int64_t(8 * kMiB)) << i;
    EXPECT_EQ(D(cuMemGetAllocationPropertiesFromHandle)(&told, handle), CUDA_SUCCESS);
    EXPECT_EQ(told.location.id, i);
    CUdeviceptr at;
    ASSERT_EQ(D(cuMemAddressReserve)(&at, 8 * kMiB, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(D(cuMemMap)(at, 8 * kMiB, 0, handle, 0), CUDA_SUCCESS);
    CUmemAccessDesc everybody[kDevices];
    for (int j = 0; j < kDevices; ++j) everybody[j] = {{1, j}, 3};
    EXPECT_EQ(D(cuMemSetAccess)(at, 8 * kMiB, everybody, kDevices), CUDA_SUCCESS) << i;
    for (int j = 0; j < kDevices; ++j) {
      CUmemLocation location{1, j};
      uint64_t flags = 0;
      EXPECT_EQ(D(cuMemGetAccess)(&flags, &location, at), CUDA_SUCCESS);
      EXPECT_EQ(flags, 3u);
    }
    EXPECT_EQ(D(cuMemsetD8_v2)(at, 5, kMiB), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemUnmap)(at, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemRelease)(handle), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemAddressFree)(at, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(held_on(i), 0) << i;
  }
}

TEST_F(VirtualDevices, HaveMemoryNodesOfTheirOwn) {
  D(cuCtxSetCurrent)(primary[0]);
  CUgraph graph;
  ASSERT_EQ(D(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  CUmemAccessDesc everybody[kDevices];
  for (int i = 0; i < kDevices; ++i) everybody[i] = {{1, i}, 3};
  for (int i = 0; i < kDevices; ++i) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{{1, 0, {1, i}, nullptr, 0, 0, {}}, everybody, kDevices, 4 * kMiB, 0}, told{};
    CUgraphNodeParams any{};
    any.type = 10;
    any.alloc = params;
    CUgraphNode nodes[3];
    EXPECT_EQ(D(cuGraphAddMemAllocNode)(&nodes[0], graph, nullptr, 0, &params), CUDA_SUCCESS) << i;
    EXPECT_EQ(D(cuGraphAddNode)(&nodes[1], graph, nullptr, 0, &any), CUDA_SUCCESS) << i;
    EXPECT_NE(any.alloc.dptr, 0u);
    EXPECT_EQ(any.alloc.poolProps.location.id, i);  // the program's own stays as it is
    EXPECT_EQ(any.alloc.accessDescCount, size_t{kDevices});
    EXPECT_EQ(D(cuGraphAddNode_v2)(&nodes[2], graph, nullptr, nullptr, 0, &any), CUDA_SUCCESS) << i;
    for (CUgraphNode node : nodes) {
      EXPECT_EQ(D(cuGraphMemAllocNodeGetParams)(node, &told), CUDA_SUCCESS);
      EXPECT_EQ(told.poolProps.location.id, i);
    }
  }
  CUgraphNodeParams none{};
  CUgraphNode node;
  none.type = 10;
  none.alloc = {{1, 0, {1, kDevices}, nullptr, 0, 0, {}}, nullptr, 0, kMiB, 0};
  EXPECT_EQ(D(cuGraphAddNode)(&node, graph, nullptr, 0, &none), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(D(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(VirtualDevices, AreNamedInTheHintsOfCopies) {
  D(cuCtxSetCurrent)(primary[0]);
  CUstream stream;
  ASSERT_EQ(D(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
  constexpr size_t kCopies = 6;  // more than are copied on the stack
  CUdeviceptr from[kCopies], to[kCopies];
  size_t bytes[kCopies], indices[kCopies];
  CUmemcpyAttributes hints[kCopies];
  for (size_t i = 0; i < kCopies; ++i) {
    from[i] = alloc(kMiB), to[i] = alloc(kMiB), bytes[i] = kMiB, indices[i] = i;
    hints[i] = {1, {1, static_cast<int>(i) % kDevices}, {1, 3}, 0};
  }
  size_t failed = 77;
  for (size_t kinds : {size_t{1}, kCopies}) {
    EXPECT_EQ(D(cuMemcpyBatchAsync)(to, from, bytes, kCopies, hints, indices, kinds, &failed, stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemcpyBatchAsync_v2)(to, from, bytes, kCopies, hints, indices, kinds, stream), CUDA_SUCCESS);
    EXPECT_EQ(hints[0].dstLocHint.id, 3);
    hints[0].srcLocHint.id = kDevices;
    EXPECT_EQ(D(cuMemcpyBatchAsync_v2)(to, from, bytes, kCopies, hints, indices, kinds, stream), CUDA_ERROR_INVALID_VALUE);
    hints[0].srcLocHint.id = 0;
  }
  EXPECT_EQ(D(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  for (size_t i = 0; i < kCopies; ++i) D(cuMemFree_v2)(from[i]), D(cuMemFree_v2)(to[i]);
  EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
}

// The bytes on the accounts of one device are refused there alone; which one is the daemon's to say, so the message must name it.
TEST_F(VirtualDevices, AreRefusedByTheDaemonOneByOne) {
  D(cuCtxSetCurrent)(primary[2]);
  fake->refuse = true;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(D(cuMemAlloc_v2)(&pointer, kMiB * 8), CUDA_ERROR_OUT_OF_MEMORY);
  fake->refuse = false;
  EXPECT_EQ(held_on(2), 0);
}

// From here on there is a runtime in the process.

const shim::RuntimeView& view() {
  auto get = test::entry<decltype(&::berth_shim_devices)>("berth_shim_devices");
  EXPECT_EQ(get(shim::kRuntimeView + 1), nullptr);
  return *get(shim::kRuntimeView);
}

TEST_F(VirtualDevices, TheRuntimeSeesTheCardsAndOursStayValid) {
  const void* table;
  CUuuid any{};
  D(cuGetExportTable)(&table, &any);
  int count = 0;
  EXPECT_EQ(D(cuDeviceGetCount)(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUuuid uuid;
  wire::Uuid ours = test::FakeDaemon::virtual_uuid(0);
  EXPECT_EQ(D(cuDeviceGetUuid_v2)(&uuid, 0), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(&uuid, &ours, 16), 0);
  int domain = -1;
  EXPECT_EQ(D(cuDeviceGetAttribute)(&domain, 50, 0), CUDA_SUCCESS);
  EXPECT_EQ(domain, 0);
  // Programs call the driver with the runtime's numbers.
  CUdevice device = -1;
  EXPECT_EQ(D(cuDeviceGet)(&device, 3), CUDA_SUCCESS);
  EXPECT_EQ(device, 3);
  ours = test::FakeDaemon::virtual_uuid(3);
  EXPECT_EQ(D(cuDeviceGetUuid_v2)(&uuid, 3), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&uuid, &ours, 16), 0);
  EXPECT_EQ(D(cuDeviceGet)(&device, kDevices), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(VirtualDevices, WhatAThreadHasMadeCurrentGetsItsMemory) {
  EXPECT_EQ(view().start(), kDevices);
  CUcontext shared = enter(0);
  for (int i : {3, 0, 2}) {
    view().make_current(i);
    EXPECT_EQ(view().current(), i);
    CUdeviceptr pointer = alloc(8 * kMiB);
    EXPECT_EQ(held_on(i), int64_t(8 * kMiB)) << i;
    EXPECT_EQ(device_of(pointer), 0);  // by the runtime's eyes the card's
    EXPECT_EQ(view().of_memory(pointer, 0), i);
    CUstream stream;
    EXPECT_EQ(D(cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    view().make_current(0);
    EXPECT_EQ(view().of_stream(stream, 0), i);
    CUdeviceptr later = 0;
    EXPECT_EQ(D(cuMemAllocAsync)(&later, 8 * kMiB, stream), CUDA_SUCCESS);
    EXPECT_GT(held_on(i), int64_t(8 * kMiB)) << i;
    EXPECT_EQ(D(cuMemFreeAsync)(later, stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    EXPECT_EQ(D(cuMemFree_v2)(pointer), CUDA_SUCCESS);
  }
  // Other threads have said nothing: they mean what the process did last. NCCL asks there, by the card's number.
  view().make_current(2);
  std::string bus_id;
  std::thread([&] {
    char text[16] = "";
    EXPECT_EQ(D(cuDeviceGetPCIBusId)(text, sizeof text, 0), CUDA_SUCCESS);
    bus_id = text;
  }).join();
  EXPECT_EQ(bus_id, "BE00:03:00.0");
  CUdevice card = -1;
  EXPECT_EQ(D(cuDeviceGetByPCIBusId)(&card, "BE00:03:00.0"), CUDA_SUCCESS);
  EXPECT_EQ(card, 0);  // the runtime knows cards only
  EXPECT_EQ(D(cuCtxSetCurrent)(shared), CUDA_SUCCESS);
}

TEST_F(VirtualDevices, AResetBesideOthersFreesTheMemoryOfOne) {
  view().make_current(0);
  enter(0);
  int64_t before[] = {held_on(0), held_on(3)};  // pools keep what they have
  CUdeviceptr kept = alloc(8 * kMiB);
  view().make_current(3);
  alloc(8 * kMiB), alloc(4 * kMiB);
  EXPECT_EQ(held_on(3), before[1] + int64_t(12 * kMiB));
  CUDA_ARRAY_DESCRIPTOR description{1024, 1024, 8, 1};
  CUarray array;
  EXPECT_EQ(D(cuArrayCreate_v2)(&array, &description), CUDA_SUCCESS);
  EXPECT_GT(held_on(3), before[1] + int64_t(12 * kMiB));
  EXPECT_TRUE(view().reset(3));
  EXPECT_EQ(held_on(3), before[1]);
  EXPECT_EQ(held_on(0), before[0] + int64_t(8 * kMiB));
  EXPECT_EQ(D(cuMemsetD8_v2)(kept, 1, kMiB), CUDA_SUCCESS);
}

}  // namespace
}  // namespace berth
