#include "base/size.h"

#include <gtest/gtest.h>

namespace berth {

TEST(Size, ReadsWhatPeopleWrite) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("8G"), 8ull << 30);
  EXPECT_EQ(*parse_size("8g"), 8ull << 30);
  EXPECT_EQ(*parse_size("8GiB"), 8ull << 30);
  EXPECT_EQ(*parse_size("512MB"), 512ull << 20);
  EXPECT_EQ(*parse_size("1.5K"), 1536u);
  EXPECT_EQ(*parse_size("2t"), 2ull << 40);
}

TEST(Size, AQuotaMayAlsoBeAPercentageAndItsErrorsSaySo) {
  EXPECT_NE(parse_quota("8X", 1000).error().message.find("or a percentage of the device such as 25%"), std::string::npos);
  EXPECT_NE(parse_quota("5 %", 1000).error().message.find("without blanks, such as 25%"), std::string::npos);
}

TEST(Size, RefusesWhatIsNotASize) {
  for (const char* text : {"", "-1", "+1", "8X", "G", "1e9", "nan", "inf", "8 G", "1..2", "0x10", "8Gi", "99999999T", "8G8", "0.5", "0.0001K"})
    EXPECT_FALSE(parse_size(text).ok()) << text;
}

TEST(Size, QuotaIsASizeAShareOrNone) {
  EXPECT_EQ(**parse_quota("40%", 1000), 400u);
  EXPECT_EQ(**parse_quota("12.5%", 1000), 125u);
  EXPECT_EQ(**parse_quota("8G", 1), 8ull << 30);
  // B30: 0, 0m, empty and absent all mean no quota.
  for (const char* text : {"", "0", "0m", "0%"}) EXPECT_FALSE(parse_quota(text, 1000)->has_value()) << text;
  for (const char* text : {"101%", "-1%", "%", "a%", "4 0%"}) EXPECT_FALSE(parse_quota(text, 1000).ok()) << text;
}

TEST(Size, FormatsForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(8ull << 30), "8 GiB");
  EXPECT_EQ(format_size((8ull << 30) + (1ull << 29)), "8.5 GiB");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_LE(format_size(~0ull).size(), 9u);
}

}  // namespace berth
