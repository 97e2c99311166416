#include "shim/visible_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace berth::shim {
namespace {

std::vector<int> shown(const char* list, uint32_t count = 4) {
  wire::Uuid uuids[32]{};
  for (uint32_t i = 0; i < count; ++i) uuids[i].bytes[0] = static_cast<uint8_t>(0xa0 + i), uuids[i].bytes[15] = 0x5f;
  uint8_t places[32];
  uint32_t number = visible_devices(list, uuids, count, places);
  return {places, places + number};
}

using List = std::vector<int>;

TEST(VisibleDevices, AllWithoutTheVariable) { EXPECT_EQ(shown(nullptr), (List{0, 1, 2, 3})); }

TEST(VisibleDevices, IndicesInTheOrderGiven) {
  EXPECT_EQ(shown("2,0"), (List{2, 0}));
  EXPECT_EQ(shown(" 3 , 1 "), (List{3, 1}));
  EXPECT_EQ(shown("1"), (List{1}));
}

TEST(VisibleDevices, UuidsAndTheirBeginnings) {
  EXPECT_EQ(shown("GPU-a1000000-0000-0000-0000-00000000005f,GPU-a0"), (List{1, 0}));
  EXPECT_EQ(shown("GPU-a"), (List{}));  // the beginning of several
  EXPECT_EQ(shown("GPU-"), (List{}));
  EXPECT_EQ(shown("GPU-a1000000-0000-0000-0000-00000000005f0"), (List{}));
}

TEST(VisibleDevices, UpToTheFirstThatIsNone) {
  EXPECT_EQ(shown("1,9,2"), (List{1}));
  EXPECT_EQ(shown("0,x,2"), (List{0}));
  EXPECT_EQ(shown("0,,2"), (List{0}));
  EXPECT_EQ(shown("-1"), (List{}));
  EXPECT_EQ(shown("4"), (List{}));
  EXPECT_EQ(shown(""), (List{}));
  EXPECT_EQ(shown("99999999999999999999"), (List{}));
  EXPECT_EQ(shown("MIG-abc"), (List{}));
}

TEST(VisibleDevices, TheSameTwiceShowsNone) { EXPECT_EQ(shown("0,1,0"), (List{})); }

TEST(VisibleDevices, AUuidIsWrittenAsNvidiaSmiWritesIt) {
  wire::Uuid uuid{{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 0xff}};
  char text[kUuidText];
  format_uuid(uuid, text);
  EXPECT_EQ(std::string(text), "GPU-01234567-89ab-cdef-0001-0203040506ff");
}

}  // namespace
}  // namespace berth::shim
