#include "cli/table.h"

#include <gtest/gtest.h>

namespace berth::cli {

TEST(Table, AlignsAndTrims) {
  Table table({{"NAME"}, {"N", Align::right}, {"LAST"}});
  table.add({"a", "1", "x"});
  table.add({"longer", "100", ""});
  EXPECT_EQ(table.text(),
            "NAME      N  LAST\n"
            "a         1  x\n"
            "longer  100\n");
}

TEST(Table, SpannedCellsWidenNothing) {
  Table table({{"NAME"}, {"STATE"}, {"USED", Align::right}});
  table.add({"job", "running", "1 GiB"});
  table.add({Cell("  4711 a very long command line", 2), "12 MiB"});
  table.add({Cell("  the last cell of a row may run on", 3)});
  EXPECT_EQ(table.text(),
            "NAME  STATE      USED\n"
            "job   running   1 GiB\n"
            "  4711 a very  12 MiB\n"
            "  the last cell of a row may run on\n");
}

TEST(Table, CutsAtTheTerminalAndCountsCharacters) {
  Table table({{"NAME"}, {"X"}});
  table.add({"\xc3\xa4\xc3\xb6", "abc"});
  EXPECT_EQ(table.text(7), "NAME  X\n\xc3\xa4\xc3\xb6    a\n");
  EXPECT_EQ(cut("\xc3\xa4\xc3\xb6", 1), "\xc3\xa4");
  EXPECT_EQ(table.text(0, true).substr(0, 4), "\033[1m");
}

}  // namespace berth::cli
