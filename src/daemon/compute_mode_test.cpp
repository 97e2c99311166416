// Compute modes as jobs and programs meet them: configured, and the card's own.
#include <csignal>

#include "daemon/testing/bench.h"

namespace berth::daemon {

using ComputeModeTest = DaemonTest;

namespace {

// The wire's numbers: kind overhead, no bytes, first_context.
const std::string kContext = "reserve 0 7 0 1", kRefused = "unavailable 0 ";

std::string attach() { return "attach client " + device_uuid(); }
bool is_granted(const std::string& answer) { return answer.starts_with("granted "); }
bool is_unavailable(const std::string& answer) { return answer.starts_with(kRefused); }

std::string message_of(const Json& reply) {
  return reply.contains("error") ? reply["error"]["message"].get<std::string>() : "no error";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_F(ComputeModeTest, AnExclusiveDeviceIsForOneProcess) {
  settings_.config.modes.all = policy::ComputeMode::exclusive;
  start();
  Job a = job({{"name", "train"}});
  Program child = a.root.spawn();
  a.root.say(attach());
  child.say(attach());
  EXPECT_EQ(a.root.say("mode 0"), "3");
  EXPECT_TRUE(is_granted(a.root.say(kContext)));
  EXPECT_TRUE(is_granted(a.root.say(kContext)));
  EXPECT_TRUE(is_unavailable(child.say(kContext)));
  auto told = events("device_unavailable");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(has(told[0]["message"], "train")) << told[0];
  EXPECT_EQ(told[0]["fields"]["pid"], child.pid);
  // All of it given back: the other one's turn.
  EXPECT_EQ(a.root.say("release 0 7 18446744073709551615"), "ok");
  EXPECT_TRUE(is_granted(child.say(kContext)));
  EXPECT_TRUE(is_unavailable(a.root.say(kContext)));
}

TEST_F(ComputeModeTest, AfterItsDeathTheNextOneHasIt) {
  settings_.config.modes.all = policy::ComputeMode::exclusive;
  start();
  Job a = job();
  Program child = a.root.spawn();
  a.root.say(attach());
  child.say(attach());
  EXPECT_TRUE(is_granted(child.say(kContext)));
  gpus_->set(child.pid, 518 * kMiB);
  pid_t dead = child.pid;
  child.end(SIGKILL);
  a.root.tell(kContext);  // waits until the driver has let go
  EXPECT_TRUE(eventually([&] { return used("python3-1", "leaving_bytes") > 0; }));
  gpus_->remove(dead);
  EXPECT_TRUE(is_granted(a.root.hear()));
}

TEST_F(ComputeModeTest, ASecondJobIsRefusedOrWaits) {
  settings_.config.modes.all = policy::ComputeMode::exclusive;
  start();
  Job a = job({{"name", "train"}, {"memory", "1G"}});
  Command refused(socket_), waits(socket_);
  for (const char* memory : {"1G", ""}) {
    Json reply = admit(refused, {{"memory", memory}});
    EXPECT_EQ(reply["error"]["code"], "refused");
    EXPECT_TRUE(has(message_of(reply), "train (")) << reply;
    EXPECT_TRUE(has(message_of(reply), "--wait")) << reply;
  }
  waits.send({{"op", "admit"}, {"command", {"b"}}, {"wait_seconds", -1}});
  EXPECT_TRUE(has(waits.event()["waiting_for"], "train ("));
  Json shown = Command(socket_).ask({{"op", "gpus"}})["devices"][0];
  EXPECT_EQ(shown["compute_mode"], "exclusive");
  EXPECT_EQ(shown["card_compute_mode"], "default");
  EXPECT_TRUE(has(shown["exclusive_to"], "train ("));
  a.root.end();
  a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}});
  EXPECT_EQ(waits.reply()["name"], "b-1");
}

TEST_F(ComputeModeTest, AProhibitedDeviceTakesNobody) {
  gpus_->devices.resize(2);
  settings_.config.modes.own = {{"1", policy::ComputeMode::prohibited}, {"9", policy::ComputeMode::prohibited}};
  start();
  EXPECT_EQ(events("unknown_device").size(), 1u);
  Command command(socket_);
  for (double wait : {0.0, -1.0}) {
    Json reply = admit(command, {{"device", "1"}, {"wait_seconds", wait}});
    EXPECT_EQ(reply["error"]["code"], "refused");
    EXPECT_TRUE(has(message_of(reply), "GPU 1 is closed")) << reply;
  }
  Job a = job();
  EXPECT_EQ(a.admitted["devices"][0]["index"], 0);
  a.root.say("attach client " + device_uuid(0) + " " + device_uuid(1));
  EXPECT_EQ(a.root.say("mode 0"), "0");
  EXPECT_EQ(a.root.say("mode 1"), "2");
  EXPECT_TRUE(is_unavailable(a.root.say("reserve 1 7 0 1")));
  EXPECT_TRUE(is_granted(a.root.say(kContext)));
}

TEST_F(ComputeModeTest, TheCardsOwnModeIsFollowed) {
  gpus_->devices[0].compute_mode = policy::ComputeMode::prohibited;
  start();
  Command command(socket_);
  EXPECT_TRUE(has(message_of(admit(command, {})), "set on the card"));
  {
    std::lock_guard lock(gpus_->mutex);
    gpus_->devices[0].compute_mode = policy::ComputeMode::exclusive;
  }
  EXPECT_TRUE(eventually([&] {
    return Command(socket_).ask({{"op", "gpus"}})["devices"][0]["compute_mode"] == "exclusive";
  }));
  EXPECT_EQ(events("compute_mode").size(), 1u);
  Job a = job();
  a.root.say(attach());
  EXPECT_EQ(a.root.say("mode 0"), "3");
}

TEST_F(ComputeModeTest, WhoComputesThereWithoutAJobHasIt) {
  settings_.config.modes.all = policy::ComputeMode::exclusive;
  Program stranger(socket_);
  gpus_->set(stranger.pid, 300 * kMiB);
  start();
  Command command(socket_);
  EXPECT_TRUE(
      has(message_of(admit(command, {})), "fake_guest (process " + std::to_string(stranger.pid) + ") of no job"));
  gpus_->remove(stranger.pid);
  EXPECT_TRUE(eventually([&] { return admit(command, {}).contains("job"); }));
}

}  // namespace berth::daemon
