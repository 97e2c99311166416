#include "daemon/config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/test_folder.h"

namespace berth::daemon {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  Result<Config> read(const std::string& text) {
    std::ofstream(file_) << text;
    return read_config(file_);
  }
  std::string error(const std::string& text) {
    auto config = read(text);
    return config ? "no error" : config.error().message;
  }

  TestFolder folder_;
  const std::string file_ = folder_.file("berth.toml");
};

}  // namespace

TEST_F(ConfigTest, ReadsAllThereIs) {
  auto config = read(R"(
    [scheduler]
    latency_target_us = 150
    quantum_ms = 30
    starvation_s = 4
    split_graphs = true
    [daemon]
    socket = "/run/berth/x.sock"
    headroom = "512M"
    [limits.default]
    max_memory = "40%"
    max_jobs = 4
    [limits.user.alice]
    max_memory = "60G"
    max_priority = "high"
    [limits.group.staff]
    max_weight = 500
    [events]
    keep = 50
  )");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->socket, "/run/berth/x.sock");
  EXPECT_EQ(config->headroom, 512ull << 20);
  EXPECT_EQ(config->default_limits.max_memory, "40%");
  EXPECT_EQ(config->user_limits.at("alice").max_priority, policy::Priority::high);
  EXPECT_EQ(config->group_limits.at("staff").max_weight, 500u);
  EXPECT_EQ(config->keep_events, 50u);
  EXPECT_TRUE(read("").ok());
  EXPECT_EQ(config->scheduler.latency_target, std::chrono::microseconds(150));
  EXPECT_EQ(config->scheduler.quantum, std::chrono::milliseconds(30));
  EXPECT_EQ(config->scheduler.starvation, std::chrono::seconds(4));
  EXPECT_TRUE(config->scheduler.split_graphs);
  EXPECT_FALSE(read("[scheduler]\n")->scheduler.split_graphs) << "off unless asked for";
}

TEST_F(ConfigTest, WhatIsWrongIsNamedWithFileAndLine) {
  EXPECT_EQ(error("[daemon]\nsockett = \"/x\"\n"),
            file_ + ":2: unknown key 'sockett' in daemon; known are socket, headroom");
  EXPECT_EQ(error("\n[limit.default]\nmax_jobs = 1\n").substr(0, file_.size() + 25),
            file_ + ":2: unknown key 'limit' i");
  for (const char* text :
       {"[limits.default]\nmax_memory = \"8X\"", "[limits.default]\nmax_jobs = -1",
        "[limits.default]\nmax_priority = \"top\"", "[limits.user.bob]\nmax_weight = 0",
        "[limits.group.staff]\nmax_jobs = \"4\"", "[events]\nkeep = 0", "[daemon]\nsocket = \"relative\"",
        "[daemon]\nheadroom = \"-1\"", "[limits.user]\nbob = 3", "[daemon]\nx y"})
    EXPECT_TRUE(error(text).starts_with(file_ + ":2: ")) << error(text);
  EXPECT_NE(read_config(folder_.file("none.toml")).error().message.find("/none.toml"), std::string::npos);
}

TEST_F(ConfigTest, MalformedFilesAreRefusedWithOneLine) {
  for (const char* text : {"[", "[[", "[[[", "[[[a]]]", "[[ [a]]", "[a.[b]]", "[]", "[[]]", "[a.=]", "[a", "=", ".a=1", "a", "a=",
                           "a=[", "a={", "a={b", "a='", "a=\"\\", "a=1 b=2", "a=1\na=2", "a=\"\"\"", "\"a", "a.=1", "]", "{",
                           "}", "a=[[[", "a={[", "\x01", "\xff\xfe", "a=0x", "a=1979-", "a=+", "a=[1,,2]"}) {
    std::string message = error(text);
    EXPECT_TRUE(message.starts_with(file_ + ":")) << text << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << text;
  }
}

TEST_F(ConfigTest, UserBeforeGroupBeforeDefault) {
  auto config = *read(R"(
    [limits.default]
    max_memory = "4G"
    max_jobs = 1
    [limits.group.a]
    max_memory = "8G"
    [limits.group.b]
    max_memory = "50%"
    max_jobs = 3
    [limits.user.alice]
    max_jobs = 2
    max_memory = "0"
  )");
  policy::Limits nobody = limits_of(config, "bob", {}, true, false);
  EXPECT_EQ(nobody.max_memory, "4G");
  EXPECT_EQ(nobody.max_jobs, 1u);
  EXPECT_EQ(nobody.max_priority, policy::Priority::normal);
  policy::Limits member = limits_of(config, "bob", {"a", "b"}, true, false);
  EXPECT_EQ(member.max_memory, "50%");  // the most generous group
  EXPECT_EQ(member.max_jobs, 3u);
  policy::Limits alice = limits_of(config, "alice", {"b"}, false, false);
  EXPECT_EQ(alice.max_memory, "0");  // no limit
  EXPECT_EQ(alice.max_jobs, 2u);
  EXPECT_EQ(alice.max_priority, policy::Priority::high);
  EXPECT_EQ(limits_of(config, "root", {}, true, true).max_priority, policy::Priority::high);
}

TEST_F(ConfigTest, TheSchedulersFiguresHaveBounds) {
  EXPECT_EQ(error("[scheduler]\nquantum_ms = 1"),
            file_ + ":2: scheduler.quantum_ms must be a whole number from 4 to 1000");
  EXPECT_EQ(error("[scheduler]\nstarvation_s = 1.5"),
            file_ + ":2: scheduler.starvation_s must be a whole number from 1 to 3600");
  EXPECT_EQ(error("[scheduler]\nsplit_graphs = 1"), file_ + ":2: scheduler.split_graphs must be true or false");
  EXPECT_EQ(error("[scheduler]\nsplit = true"),
            file_ + ":2: unknown key 'split' in scheduler; known are latency_target_us, quantum_ms, starvation_s, split_graphs");
  EXPECT_EQ(error("scheduler = 3"), file_ + ":1: scheduler must be a table");
}

TEST_F(ConfigTest, ComputeModesOfAllAndOfSingleDevices) {
  auto config = read(R"(
    [device]
    compute_mode = "exclusive"
    [device."GPU-0123"]
    compute_mode = "prohibited"
    [device."3"]
    compute_mode = "default"
    [device.4]
  )");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->modes.all, policy::ComputeMode::exclusive);
  using Own = std::vector<std::pair<std::string, policy::ComputeMode>>;
  EXPECT_EQ(config->modes.own, (Own{{"3", policy::ComputeMode::shared}, {"GPU-0123", policy::ComputeMode::prohibited}}));
  EXPECT_EQ(read("[device]\ncompute_mode = \"exclusive_process\"")->modes.all, policy::ComputeMode::exclusive);
  EXPECT_EQ(read("")->modes.all, policy::ComputeMode::shared);
}

TEST_F(ConfigTest, ComputeModesThatAreNone) {
  EXPECT_EQ(error("[device]\ncompute_mode = \"Exclusive\""),
            file_ + ":2: device.compute_mode must be \"default\", \"exclusive\" or \"prohibited\"");
  EXPECT_TRUE(error("[device.\"0\"]\ncompute_mode = 3").starts_with(file_ + ":2: device.\"0\".compute_mode must be"));
  EXPECT_EQ(error("[device.\"0\"]\nmode = 3"), file_ + ":2: unknown key 'mode' in device.\"0\"; known are compute_mode");
  for (const char* text : {"[device]\nmode = \"default\"", "[device]\n\"-1\" = {}", "[device]\n\"GPU-\" = {}", "[device]\n\"0\" = \"exclusive\"",
                           "[device]\n\"99999\" = {}"})
    EXPECT_TRUE(error(text).starts_with(file_ + ":2: ")) << error(text);
  EXPECT_EQ(error("device = 1"), file_ + ":1: device must be a table");
}

}  // namespace berth::daemon
