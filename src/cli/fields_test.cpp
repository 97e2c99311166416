#include "cli/fields.h"

#include <gtest/gtest.h>

namespace berth::cli {

TEST(Fields, SecondsGetTheUnitThatSuitsThem) {
  struct Case {
    double seconds;
    const char* text;
  };
  for (const Case& c : {Case{0, "0 s"}, Case{0.0002, "200 us"}, Case{0.000999, "999 us"}, Case{0.0009996, "1 ms"},
                        Case{0.9994, "999 ms"}, Case{0.9996, "1.0 s"}, Case{12.34, "12.3 s"}, Case{99.94, "99.9 s"},
                        Case{99.96, "1.7 min"}, Case{5996, "99.9 min"}, Case{5998, "1.7 h"}, Case{359000, "99.7 h"},
                        Case{359900, "4 d"}})
    EXPECT_EQ(format_seconds(c.seconds), c.text) << c.seconds;
}

TEST(Fields, WhatIsMissingOrOfAnotherKindIsUnknown) {
  const Json object = {{"text", "a\nb"}, {"negative", -1}, {"nothing", nullptr}, {"half", 0.5}, {"bytes", 1 << 20}};
  EXPECT_EQ(text_cell(object, "text"), "a?b");
  EXPECT_EQ(size_cell(object, "bytes"), "1 MiB");
  EXPECT_EQ(ratio_cell(object, "half"), "50%");
  EXPECT_EQ(seconds_cell(object, "half"), "500 ms");
  for (const char* key : {"negative", "nothing", "half", "text", "missing"})
    EXPECT_EQ(size_cell(object, key), "-") << key;
  for (const char* key : {"nothing", "text", "missing"}) {
    EXPECT_EQ(ratio_cell(object, key), "-");
    EXPECT_EQ(seconds_cell(object, key), "-");
    EXPECT_TRUE(list(object, key).empty());
  }
  EXPECT_TRUE(field(Json::array(), "text").is_null());
  EXPECT_EQ(sum_of({object, object, {{"bytes", nullptr}}}, "bytes"), 2u << 20);
}

}  // namespace berth::cli
