// Virtual devices by the management library: the shim that ships on two simulated cards, with a daemon that gives the process
// three of them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "abi/nvml_api.h"
#include "support/fake_daemon.h"
#include "support/shim_entry.h"

namespace berth {
namespace {

using test::shim;
test::FakeDaemon* fake;

constexpr unsigned kDevices = 3;
constexpr uint64_t kQuota = 3ull << 30;

class VirtualNvml : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("BERTH_SIM_GPUS", "2", 1);
    fake = new test::FakeDaemon;
    fake->quota = kQuota;
    fake->virtual_cards = {0, 1, 0};
    setenv("BERTH_DRIVER", SIM_PATH, 1);
    shim = dlopen(NVML_SHIM_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(shim) << dlerror();
    ASSERT_EQ(D(nvmlInit_v2)(), NVML_SUCCESS);
  }
  static nvmlDevice_t device(unsigned index) {
    nvmlDevice_t found = nullptr;
    EXPECT_EQ(D(nvmlDeviceGetHandleByIndex_v2)(index, &found), NVML_SUCCESS);
    return found;
  }
};

TEST_F(VirtualNvml, CountsThemInBothSpellings) {
  for (auto get : {D(nvmlDeviceGetCount), D(nvmlDeviceGetCount_v2)}) {
    unsigned count = 0;
    EXPECT_EQ(get(&count), NVML_SUCCESS);
    EXPECT_EQ(count, kDevices);
    EXPECT_EQ(get(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  }
}

TEST_F(VirtualNvml, FindsThemByEveryName) {
  for (unsigned i = 0; i < kDevices; ++i) {
    nvmlDevice_t found = nullptr;
    EXPECT_EQ(D(nvmlDeviceGetHandleByIndex)(i, &found), NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
    unsigned index = 99;
    EXPECT_EQ(D(nvmlDeviceGetIndex)(device(i), &index), NVML_SUCCESS);
    EXPECT_EQ(index, i);
    char uuid[96] = "", cut[8] = "";
    EXPECT_EQ(D(nvmlDeviceGetUUID)(device(i), uuid, sizeof uuid), NVML_SUCCESS);
    EXPECT_EQ(std::string(uuid), "GPU-be000000-0000-0000-0000-00000000000" + std::to_string(i));
    EXPECT_NE(D(nvmlDeviceGetUUID)(device(i), cut, sizeof cut), NVML_SUCCESS);
    EXPECT_EQ(D(nvmlDeviceGetHandleByUUID)(uuid, &found), NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
    nvmlUUID_v1_t id{};
    id.type = 2;
    wire::Uuid bytes = test::FakeDaemon::virtual_uuid(i);
    std::memcpy(id.value.bytes, bytes.bytes, 16);
    EXPECT_EQ(D(nvmlDeviceGetHandleByUUIDV)(&id, &found), NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
    nvmlPciInfo_t info{};
    EXPECT_EQ(D(nvmlDeviceGetPciInfo_v3)(device(i), &info), NVML_SUCCESS);
    EXPECT_EQ(std::string(info.busId), "0000BE00:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(std::string(info.busIdLegacy), "BE00:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(info.domain, 0xbe00u);
    EXPECT_EQ(info.bus, i + 1);
    EXPECT_EQ(info.device, 0u);
    for (std::string text : {std::string(info.busId), std::string(info.busIdLegacy), "be00:0" + std::to_string(i + 1) + ":00"})
      for (auto get : {D(nvmlDeviceGetHandleByPciBusId), D(nvmlDeviceGetHandleByPciBusId_v2)}) {
        EXPECT_EQ(get(text.c_str(), &found), NVML_SUCCESS) << text;
        EXPECT_EQ(found, device(i));
      }
  }
}

TEST_F(VirtualNvml, TheOlderPciInfosEndBeforeTheLongId) {
  for (auto get : {D(nvmlDeviceGetPciInfo), D(nvmlDeviceGetPciInfo_v2)}) {
    nvmlPciInfo_t info{};
    EXPECT_EQ(get(device(1), &info), NVML_SUCCESS);
    EXPECT_EQ(std::string(info.busIdLegacy), "BE00:02:00.0");
    EXPECT_EQ(std::string(info.busId).find("BE00"), std::string::npos);  // not ours to write there
  }
}

TEST_F(VirtualNvml, WhatIsNoneGetsTheLibrarysOwnAnswers) {
  nvmlDevice_t found;
  EXPECT_EQ(D(nvmlDeviceGetHandleByIndex_v2)(kDevices, &found), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(D(nvmlDeviceGetHandleByUUID)("GPU-00000000-0000-0000-0000-000000000000", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(D(nvmlDeviceGetHandleByPciBusId_v2)("0000BE00:04:00.0", &found), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(D(nvmlDeviceGetHandleByPciBusId_v2)("00000000:01:00.0", &found), NVML_ERROR_NOT_FOUND);  // a card's
  EXPECT_EQ(D(nvmlDeviceGetHandleByPciBusId_v2)("nonsense", &found), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(VirtualNvml, EveryOtherEntryTakesTheHandle) {
  for (unsigned i = 0; i < kDevices; ++i) {
    char name[64] = "";
    EXPECT_EQ(D(nvmlDeviceGetName)(device(i), name, sizeof name), NVML_SUCCESS);
    EXPECT_STRNE(name, "");
    unsigned minor = 99;
    EXPECT_EQ(D(nvmlDeviceGetMinorNumber)(device(i), &minor), NVML_SUCCESS);
    EXPECT_EQ(minor, static_cast<unsigned>(fake->virtual_cards[i]));
    nvmlMemory_t memory{};
    EXPECT_EQ(D(nvmlDeviceGetMemoryInfo)(device(i), &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, kQuota);
    nvmlMemory_v2_t more{};
    more.version = sizeof more | 2u << 24;
    EXPECT_EQ(D(nvmlDeviceGetMemoryInfo_v2)(device(i), &more), NVML_SUCCESS);
    EXPECT_EQ(more.total, kQuota);
  }
}

// Its numbers follow its own place in the page, not its card's.
TEST_F(VirtualNvml, TheMemoryOfEachIsItsOwn) {
  fake->page->devices[2].free_bytes = 1ull << 30;
  nvmlMemory_t memory{};
  EXPECT_EQ(D(nvmlDeviceGetMemoryInfo)(device(2), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.free, 1ull << 30);
  EXPECT_EQ(D(nvmlDeviceGetMemoryInfo)(device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.free, kQuota);
}

TEST_F(VirtualNvml, TwoOnOneCardReachEachOther) {
  int status = 9;
  EXPECT_EQ(D(nvmlDeviceGetP2PStatus)(device(0), device(2), 0, &status), NVML_SUCCESS);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace berth
