#include "cli/text.h"

#include <gtest/gtest.h>

namespace berth::cli {

TEST(Text, SharesArePercentages) {
  EXPECT_DOUBLE_EQ(*parse_share("50%"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_share("12.5"), 0.125);
  EXPECT_DOUBLE_EQ(*parse_share("100%"), 1);
  for (const char* text : {"", "%", "0", "0%", "101%", "-5%", "nan", "1e1", "50%%", "5 0"})
    EXPECT_FALSE(parse_share(text).ok()) << text;
}

TEST(Text, SinceIsAnAgeOrATime) {
  EXPECT_DOUBLE_EQ(*parse_since("10m", 0), 600);
  EXPECT_DOUBLE_EQ(*parse_since("2h", 0), 7200);
  EXPECT_DOUBLE_EQ(*parse_since("1d", 0), 86400);
  EXPECT_DOUBLE_EQ(*parse_since("90", 0), 90);
  EXPECT_DOUBLE_EQ(*parse_since("1.5s", 0), 1.5);
  EXPECT_DOUBLE_EQ(*parse_since("2026-11-30T12:00:00Z", 1796040000 + 30), 30);
  EXPECT_DOUBLE_EQ(*parse_since("2026-11-30T12:00:00Z", 0), 0);  // still to come
  for (const char* text : {"", "m", "10x", "-1m", "yesterday", "2026-11-30", "10 m", "infm"})
    EXPECT_FALSE(parse_since(text, 0).ok()) << text;
}

TEST(Text, Rfc3339) {
  EXPECT_DOUBLE_EQ(*parse_rfc3339("1970-01-01T00:00:00Z"), 0);
  EXPECT_DOUBLE_EQ(*parse_rfc3339("1970-01-01T01:00:00.5+01:00"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_rfc3339("1970-01-01t00:00:00-00:30"), 1800);
  for (const char* text : {"1970-13-01T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:00:00", "1970-01-01T00:00:00+1",
                           "1970-01-01T00:00:00Zx", "1970-01-01T00:-1:00Z", "1970-01-01T00:00:nanZ"})
    EXPECT_FALSE(parse_rfc3339(text).has_value()) << text;
}

TEST(Text, QuotasAreCheckedAndKeptAsTyped) {
  EXPECT_EQ(*check_quota("8G"), "8G");
  EXPECT_EQ(*check_quota("40%"), "40%");
  for (const char* text : {"", "0", "0m"}) EXPECT_TRUE(check_quota(text).ok()) << text;
  for (const char* text : {"8X", "-1", "101%", "eight"}) EXPECT_FALSE(check_quota(text).ok()) << text;
}

TEST(Text, Devices) {
  for (const char* text : {"0", "15", "GPU-1", "GPU-8f6a23cb-1c52-0b25-8f6a-23cb1c520b25"})
    EXPECT_TRUE(check_device(text).ok()) << text;
  for (const char* text : {"", "-1", "gpu0", "GPU-", "GPU-1;2", "1,2", "123456"})
    EXPECT_FALSE(check_device(text).ok()) << text;
}

TEST(Text, JobNames) {
  for (const char* text : {"a", "train-1", "A.b_c"}) EXPECT_TRUE(check_job_name(text).ok()) << text;
  for (const char* text : {"", "-a", ".a", "a b", "a/b", "a\nb", "\xc3\xa4"}) EXPECT_FALSE(check_job_name(text).ok()) << text;
  EXPECT_FALSE(check_job_name(std::string(65, 'a')).ok());
  EXPECT_EQ(*check_job_reference("alice/train-1"), "alice/train-1");
  for (const char* text : {"/a", "alice/", "alice/-x", ""}) EXPECT_FALSE(check_job_reference(text).ok()) << text;
}

TEST(Text, WeightPriorityWait) {
  EXPECT_EQ(*parse_weight("1"), 1);
  EXPECT_EQ(*parse_weight("10000"), 10000);
  for (const char* text : {"0", "10001", "-1", "1.5", "", "x"}) EXPECT_FALSE(parse_weight(text).ok()) << text;
  EXPECT_TRUE(check_priority("low").ok());
  EXPECT_FALSE(check_priority("High").ok());
  EXPECT_EQ(*parse_wait(""), -1);
  EXPECT_EQ(*parse_wait("0"), 0);
  for (const char* text : {"-1", "1.5", "5m", "x"}) EXPECT_FALSE(parse_wait(text).ok()) << text;
}

}  // namespace berth::cli
