#include "cli/views.h"

#include <gtest/gtest.h>

#include "cli/output.h"
#include "cli/table.h"

namespace berth::cli {
namespace {

Json job() {
  return {{"name", "train-1"}, {"user", "alice"}, {"state", "running"}, {"priority", "normal"}, {"weight", 100},
          {"waiting_for", nullptr}, {"queue_position", nullptr},
          {"devices", {{{"index", 0}, {"quota_bytes", 8ull << 30}, {"used_bytes", 3ull << 30}, {"overhead_bytes", 518ull << 20},
                        {"gpu_share_ratio", 0.452},
                        {"waited_seconds", 12.5}}}},
          {"clients", {{{"pid", 4711}, {"command", "python"}, {"state", "attached"},
                        {"devices", {{{"index", 0}, {"used_bytes", 3ull << 30}, {"overhead_bytes", 518ull << 20}}}}}}}};
}

}  // namespace

TEST(Views, PsShowsJobsAndClients) {
  EXPECT_EQ(ps_view({{"jobs", {job()}}}, {}),
            "NAME     STATE    PRIORITY  WEIGHT  GPU   USED  OVERHEAD  QUOTA  SHARE  WAITED\n"
            "train-1  running  normal       100    0  3 GiB   518 MiB  8 GiB    45%  12.5 s\n"
            "  4711    python                         3 GiB   518 MiB\n");
}

TEST(Views, PsFitsAHundredColumnsWithTheWidestFigures) {
  Json wide = job();
  wide["name"] = "training-12";
  wide["weight"] = 10000;
  wide["devices"][0].update({{"quota_bytes", 1023ull << 20}, {"used_bytes", (99ull << 30) + (1 << 29)},
                             {"overhead_bytes", 1023ull << 20}, {"gpu_share_ratio", 1},
                             {"waited_seconds", 5990.0}});
  Json other = job();
  other["user"] = "somebody";  // so that users show
  std::string view = ps_view({{"jobs", {wide, other}}}, {});
  EXPECT_NE(view.find("1023 MiB   100%  99.8 min\n"), std::string::npos) << view;
  for (size_t end, from = 0; (end = view.find('\n', from)) != std::string::npos; from = end + 1)
    EXPECT_LE(end - from, 100u);
}

TEST(Views, EachDeviceHasItsOwnShare) {
  Json two = job();
  two["devices"].push_back({{"index", 1}, {"gpu_share_ratio", 0.1}, {"waited_seconds", 0}});
  std::string view = ps_view({{"jobs", {two}}}, {});
  EXPECT_NE(view.find("    1      -         -      -    10%     0 s\n"), std::string::npos) << view;
}

TEST(Views, PsShowsVirtualDevicesAndWhereTheyLie) {
  Json several = job();
  several["gpus"] = 2;
  for (int v : {0, 1})
    several["virtual_devices"].push_back({{"index", v},
                                          {"device_index", v},
                                          {"quota_bytes", 4ull << 30},
                                          {"used_bytes", (3ull - v) << 30},
                                          {"overhead_bytes", 0}});
  EXPECT_EQ(ps_view({{"jobs", {several}}}, {}),
            "NAME     STATE    PRIORITY  WEIGHT  GPU   USED  OVERHEAD  QUOTA  SHARE  WAITED\n"
            "train-1  running  normal       100    0  3 GiB   518 MiB  8 GiB    45%  12.5 s\n"
            "  virtual GPU 0                       0  3 GiB       0 B  4 GiB\n"
            "  virtual GPU 1                       1  2 GiB       0 B  4 GiB\n"
            "  4711    python                         3 GiB   518 MiB\n");
}

TEST(Views, GpusShowWhoseVirtualDevicesAreThere) {
  Json jobs = {{{"name", "a"}, {"virtual_devices", {0, 2}}},
               {{"name", "b"}, {"virtual_devices", {0, 1, 2, 3}}},
               {{"name", "c"}, {"virtual_devices", {5}}},
               {{"name", "d"}, {"virtual_devices", Json::array()}},
               {{"name", "e"}, {"virtual_devices", {0, 2, 4}}}};
  std::string view = gpus_view({{"devices", {{{"index", 0}, {"jobs", jobs}}}}}, {});
  for (const char* line : {"     virtual GPUs 0 and 2 of a\n", "     virtual GPUs 0 to 3 of b\n",
                           "     virtual GPU 5 of c\n", "     virtual GPUs 0, 2 and 4 of e\n"})
    EXPECT_NE(view.find(line), std::string::npos) << view;
  EXPECT_EQ(view.find(" of d"), std::string::npos);
}

TEST(Views, UnknownIsADash) {
  Json bare = {{"name", "x"}, {"state", "waiting"}, {"gpu_share_ratio", nullptr}};
  EXPECT_EQ(ps_view({{"jobs", {bare}}}, {}),
            "NAME  STATE    PRIORITY  WEIGHT  GPU  USED  OVERHEAD  QUOTA  SHARE  WAITED\n"
            "x     waiting  -              -    -     -         -      -      -       -\n");
  EXPECT_EQ(ps_view(Json::object(), {}), "NAME  STATE  PRIORITY  WEIGHT  GPU  USED  OVERHEAD  QUOTA  SHARE  WAITED\n");
}

TEST(Views, GpusShowAComputeModeThatIsNotTheUsualOne) {
  Json gpu = {{"index", 0}, {"name", "H200"}, {"uuid", "GPU-1"}, {"compute_mode", "default"}, {"card_compute_mode", "default"},
              {"exclusive_to", nullptr}};
  EXPECT_EQ(gpus_view({{"devices", {gpu}}}, {}).find("compute mode"), std::string::npos);
  gpu.update({{"compute_mode", "exclusive"}, {"exclusive_to", "train-1 (alice)"}});
  EXPECT_NE(gpus_view({{"devices", {gpu}}}, {}).find("\n     compute mode exclusive: train-1 (alice) has it\n"), std::string::npos)
      << gpus_view({{"devices", {gpu}}}, {});
  gpu.update({{"compute_mode", "prohibited"}, {"card_compute_mode", "prohibited"}, {"exclusive_to", nullptr}});
  EXPECT_NE(gpus_view({{"devices", {gpu}}}, {}).find("compute mode prohibited, set on the card\n"), std::string::npos);
}

TEST(Views, WaitingTellsForWhat) {
  Json waiting = job();
  waiting["state"] = "waiting";
  waiting["waiting_for"] = "train-2 holds 9 GiB";
  waiting["queue_position"] = 2;
  EXPECT_NE(ps_view({{"jobs", {waiting}}}, {}).find("  waits, place 2: train-2 holds 9 GiB\n"), std::string::npos);
}

TEST(Views, UsersShowWhenThereAreSeveral) {
  Json other = job();
  other["user"] = "bob";
  EXPECT_EQ(ps_view({{"jobs", {job()}}}, {}).find("USER"), std::string::npos);
  std::string view = ps_view({{"jobs", {job(), other}}}, {});
  EXPECT_NE(view.find("USER"), std::string::npos);
  EXPECT_NE(view.find("bob"), std::string::npos);
}

TEST(Views, NamesCantSteerTheTerminal) {
  Json evil = job();
  evil["clients"][0]["command"] = "a\033[2Jb\nc";
  EXPECT_NE(ps_view({{"jobs", {evil}}}, {}).find("a?[2Jb?c"), std::string::npos);
  EXPECT_EQ(message_text("x\033[2J\ny"), "berth: x?[2J\nberth: y\n");
}

TEST(Views, ClientsTellWhatIsSpecial) {
  Json odd = job();
  odd["clients"][0]["state"] = "leaving";
  odd["clients"][0]["partly_covered"] = true;
  EXPECT_NE(ps_view({{"jobs", {odd}}}, {}).find("          leaving, partly covered\n"), std::string::npos);
}

TEST(Views, GpusShowWhoElseIsThere) {
  Json gpus = {{"devices", {{{"index", 0}, {"name", "H200"}, {"uuid", "GPU-1"}, {"total_bytes", 16ull << 30}, {"used_bytes", 0},
                             {"promised_bytes", 8ull << 30}, {"unmanaged_bytes", 0}, {"promisable_bytes", 7ull << 30},
                             {"held_by", "bob (process 7)"}, {"jobs", Json::array({Json::object()})},
                             {"unmanaged", {{{"pid", 9}, {"command", "x"}, {"user", "eve"}, {"used_bytes", nullptr}}}}}}}};
  EXPECT_EQ(gpus_view(gpus, {}),
            "GPU  NAME   TOTAL  USED  PROMISED  UNMANAGED   ROOM  JOBS\n"
            "  0  H200  16 GiB   0 B     8 GiB        0 B  7 GiB     1\n"
            "     GPU-1\n"
            "     another daemon shares it out too: bob (process 7)\n"
            "     unmanaged: 9 x, eve, -\n");
}

TEST(Views, Events) {
  EXPECT_EQ(event_line({{"at", "2026-11-30T12:00:00Z"}, {"kind", "over_quota"}, {"job", "train-1"}, {"message", "too much"}}),
            "2026-11-30T12:00:00Z  over_quota  train-1  too much\n");
  EXPECT_EQ(event_line({{"at", "t"}, {"kind", "started"}, {"job", nullptr}}), "t  started\n");
}

}  // namespace berth::cli
