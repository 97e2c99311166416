#include "cli/top_view.h"

#include <gtest/gtest.h>

#include "cli/table.h"

namespace berth::cli {
namespace {

Json shown_job(const std::string& name = "train-1") {
  return {{"name", name},
          {"user", "alice"},
          {"state", "running"},
          {"priority", "low"},
          {"weight", 100},
          {"waiting_for", nullptr},
          {"gpu_share_ratio", 0.452},
          {"gpu_share_60s_ratio", 0.4},
          {"devices",
           {{{"index", 0},
             {"quota_bytes", 8ull << 30},
             {"used_bytes", 2ull << 30},
             {"gpu_share_ratio", 0.452},
             {"waited_seconds", 12.5},
             {"throttled_seconds", 3.0},
             {"held_by", "serve"},
             {"may_run", true},
             {"window_seconds", 0.0002}}}},
          {"clients", Json::array({Json::object(), Json::object()})}};
}

TopData shown(size_t jobs) {
  TopData data;
  for (size_t i = 1; i <= jobs; ++i) data.jobs.push_back(shown_job("train-" + std::to_string(i)));
  data.devices.push_back({{"index", 0},
                          {"name", "H200"},
                          {"total_bytes", 16ull << 30},
                          {"used_bytes", 4ull << 30},
                          {"unmanaged_bytes", 1ull << 30},
                          {"promised_bytes", 8ull << 30},
                          {"held_by", nullptr}});
  return data;
}

std::vector<std::string> text_of(const TopData& data, const TopState& state, TopSize size) {
  std::vector<std::string> result;
  for (const TopLine& line : top_lines(data, state, 1, size)) {
    result.push_back(plain_text(line));
    while (!result.back().empty() && result.back().back() == ' ') result.back().pop_back();
  }
  return result;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result;
}

}  // namespace

TEST(TopView, EightyColumns) {
  EXPECT_EQ(joined(text_of(shown(2), {}, {80, 12})),
            "berth top  every 1 s  2 jobs by name\n"
            "GPU  TIME          1 S  MEMORY            USED  PROMISED     TOTAL  DEVICE\n"
            "  0  [######### ]  90%  [###---    ]     4 GiB     8 GiB    16 GiB  H200\n"
            "\n"
            "  NAME     USER   STATE    PRIORITY  WEIGHT  CLIENTS  WINDOW  HELD BY\n"
            "  TIME          1 S 60 S  MEMORY            USED     QUOTA    WAITED  THROTTLED\n"
            "> train-1  alice  running  low          100        2  200 us  serve\n"
            "  [#####     ]  45%  40%  [###       ]     2 GiB     8 GiB    12.5 s      3.0 s\n"
            "  train-2  alice  running  low          100        2  200 us  serve\n"
            "  [#####     ]  45%  40%  [###       ]     2 GiB     8 GiB    12.5 s      3.0 s\n"
            "\n"
            "? keys   q quit\n");
}

TEST(TopView, AColumnTellsOfVirtualDevicesWhereThereAreAny) {
  TopData data = shown(2);
  data.jobs[1]["gpus"] = 4;
  std::string text = joined(text_of(data, {}, {80, 12}));
  EXPECT_NE(text.find("  NAME     USER   STATE    PRIORITY  WEIGHT  CLIENTS  VIRTUAL  WINDOW  HELD BY\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("> train-1  alice  running  low          100        2        -  200 us  serve\n"),
            std::string::npos);
  EXPECT_NE(text.find("  train-2  alice  running  low          100        2        4  200 us  serve\n"),
            std::string::npos);
}

TEST(TopView, AWideTerminalHasOneLineAJob) {
  std::string text = joined(text_of(shown(2), {}, {160, 12}));
  EXPECT_NE(text.find("  NAME     USER   STATE    PRIORITY  WEIGHT  CLIENTS  WINDOW  HELD BY  TIME                1 S "
                      "60 S  MEMORY      "
                      "            USED     QUOTA    WAITED  THROTTLED\n"
                      "> train-1  alice  running  low          100        2  200 us  serve    [#######         ]  45%  "
                      "40%  [####        "
                      "    ]     2 GiB     8 GiB    12.5 s      3.0 s\n"
                      "  train-2 "),
            std::string::npos)
      << text;
}

TEST(TopView, EveryLineFitsWhateverTheSize) {
  TopData data = shown(30);
  data.jobs[3]["name"] = std::string(64, 'n');
  data.jobs[4]["user"] = "somebody-with-a-long-name";
  data.jobs[5]["devices"][0]["held_by"] = std::string(64, 'h');
  data.jobs[6]["waiting_for"] =
      "train-2 holds 9 GiB of 16 GiB, and so on and on, and on, and on, and on, and on, and on, and on";
  data.jobs[8]["gpus"] = 32;
  data.jobs[7]["name"] = "\xc3\xa4\xc3\xb6\xc3\xbc";
  TopState state;
  for (const char* trouble :
       {"", "trying again: no daemon answers at /run/berth/berth.sock; berth run starts one, and so does it"}) {
    state.notice = trouble;
    for (size_t width : {1, 20, 40, 79, 80, 81, 120, 153, 154, 200, 300})
      for (size_t height : {1, 2, 3, 5, 8, 24, 60}) {
        auto lines = top_lines(data, state, 0.5, {width, height});
        ASSERT_EQ(lines.size(), height);
        for (const TopLine& line : lines) ASSERT_LE(display_width(plain_text(line)), width) << plain_text(line);
      }
  }
}

TEST(TopView, AnyNumberOfDevices) {
  for (size_t count : {1, 2, 8, 16}) {
    TopData data = shown(3);
    for (size_t i = 1; i < count; ++i) {
      data.devices.push_back(data.devices[0]);
      data.devices[i]["index"] = i;
    }
    for (size_t height : {24, 60}) {
      std::string text = joined(text_of(data, {}, {80, height}));
      size_t fit = std::min<size_t>(count, height == 24 ? 8 : 16);
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(text.find("\n " + std::string(i < 10 ? " " : "") + std::to_string(i) + "  [") != std::string::npos, i < fit) << text;
      EXPECT_EQ(text.find("and " + std::to_string(count - fit) + " more") != std::string::npos, fit < count) << text;
      EXPECT_NE(text.find("train-3"), std::string::npos) << text;
    }
  }
}

TEST(TopView, AComputeModeThatIsNotTheUsualOneStandsWithItsDevice) {
  TopData data = shown(1);
  data.devices[0]["compute_mode"] = "default";
  EXPECT_EQ(joined(text_of(data, {}, {120, 12})).find("default"), std::string::npos);
  data.devices[0]["compute_mode"] = "exclusive";
  EXPECT_NE(joined(text_of(data, {}, {120, 12})).find("16 GiB  exclusive, H200\n"), std::string::npos);
  EXPECT_NE(joined(text_of(data, {}, {80, 12})).find("16 GiB  exclusive"), std::string::npos);
}

TEST(TopView, EightyColumnsLoseNothingOfTheUsualJob) {
  TopData data = shown(1);
  data.jobs[0]["gpu_share_ratio"] = data.jobs[0]["gpu_share_60s_ratio"] = 1;
  data.jobs[0]["devices"][0].update({{"used_bytes", (99ull << 30) + (1 << 29)},
                                     {"quota_bytes", 1023ull << 20},
                                     {"waited_seconds", 5990.0},
                                     {"throttled_seconds", 5990.0}});
  std::string text = joined(text_of(data, {}, {80, 24}));
  for (const char* part : {"train-1", "alice", "running", "low", "serve", "200 us", "100% 100%",
                           "99.5 GiB  1023 MiB  99.8 min   99.8 min\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  TopState long_keys;
  long_keys.all_keys = true;
  EXPECT_NE(text_of(data, long_keys, {80, 24}).back().find("q quit"), std::string::npos);
}

TEST(TopView, ThePageWithTheSelectedJobIsShown) {
  TopState state;
  state.place = 29;
  std::string text = joined(text_of(shown(30), state, {80, 24}));
  EXPECT_NE(text.find("\n> train-30 "), std::string::npos) << text;
  EXPECT_EQ(text.find("train-1 "), std::string::npos) << text;
  EXPECT_NE(text.find("30 jobs by name, 25 to 30 shown\n"), std::string::npos) << text;
}

TEST(TopView, OnlyTheSelectedJobIsMarked) {
  TopState state;
  state.place = 1;
  std::vector<std::string> marked;
  for (const TopLine& line : top_lines(shown(3), state, 1, {80, 24}))
    for (const TopText& text : line)
      if (text.style == TopStyle::selected) marked.push_back(text.text.substr(0, 10));
  EXPECT_EQ(marked, std::vector<std::string>{"> train-2 "});
}

TEST(TopView, UnknownIsADash) {
  TopData data = shown(1);
  data.jobs[0] = {{"name", "x"}, {"user", "u"}, {"state", "running"}};
  data.devices[0] = {{"index", 0}};
  std::string text = joined(text_of(data, {}, {80, 24}));
  EXPECT_NE(text.find("  0  [          ]    -  [          ]         -         -         -  -\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("  [          ]    -    -  [          ]       0 B         -         -          -\n"),
            std::string::npos)
      << text;
}

TEST(TopView, WithoutAQuotaTheDeviceIsTheScale) {
  TopData data = shown(1);
  EXPECT_NE(joined(text_of(data, {}, {80, 24})).find("[###       ]     2 GiB     8 GiB"), std::string::npos);
  data.jobs[0]["devices"][0]["quota_bytes"] = nullptr;
  EXPECT_NE(joined(text_of(data, {}, {80, 24})).find("[#         ]     2 GiB         -"), std::string::npos);
}

TEST(TopView, WaitingTellsForWhat) {
  TopData data = shown(1);
  data.jobs[0].update({{"state", "waiting"}, {"waiting_for", "train-2 holds 9 GiB"}, {"queue_position", 2}});
  EXPECT_NE(joined(text_of(data, {}, {80, 24})).find("\n  waits, place 2: train-2 holds 9 GiB\n"), std::string::npos);
}

TEST(TopView, WhoHoldsNowComesBeforeWhoHeldLast) {
  TopData data = shown(1);
  data.jobs[0]["devices"].push_back({{"index", 1}, {"held_by", "max_share"}, {"may_run", false}});
  EXPECT_NE(joined(text_of(data, {}, {80, 24})).find("max_share"), std::string::npos);
}

TEST(TopView, TroubleIsToldInFull) {
  TopData data;
  data.trouble =
      "trying again: no daemon answers at /run/user/1000/berth/berth.sock; berth run starts one, and so does berth "
      "daemon";
  auto lines = text_of(data, {}, {80, 24});
  EXPECT_EQ(lines[0], "berth top  every 1 s");
  EXPECT_EQ(lines[21] + " " + lines[22], data.trouble);
  TopState state;
  state.notice = "the job x belongs to another user";
  EXPECT_EQ(text_of(shown(1), state, {80, 24})[22], state.notice);
}

TEST(TopView, ManyDevicesLeaveRoomForJobs) {
  TopData data = shown(1);
  data.devices.assign(16, data.devices[0]);
  std::string text = joined(text_of(data, {}, {80, 24}));
  EXPECT_NE(text.find("and 8 more\n"), std::string::npos) << text;
  EXPECT_NE(text.find("> train-1"), std::string::npos) << text;
}

TEST(TopView, Bars) {
  EXPECT_EQ(plain_text(bar(12, 0.5, 0.8, TopStyle::time)), "[#####---  ]");
  EXPECT_EQ(plain_text(bar(12, 0.001, 0, TopStyle::time)), "[#         ]");
  EXPECT_EQ(plain_text(bar(12, 0, 0, TopStyle::time)), "[          ]");
  EXPECT_EQ(plain_text(bar(12, 1.4, 0.2, TopStyle::time)), "[##########]");
  EXPECT_EQ(plain_text(bar(12, 0, 2, TopStyle::time)), "[----------]");
}

TEST(TopView, NamesCantSteerTheTerminal) {
  TopData data = shown(1);
  data.jobs[0]["name"] = "a\033[2J";
  data.devices[0]["name"] = "b\nc";
  for (const std::string& line : text_of(data, {}, {80, 24}))
    EXPECT_EQ(line.find_first_of("\033\n"), std::string::npos);
}

}  // namespace berth::cli
