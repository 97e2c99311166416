// Attached programs, their memory and their death.
#include <csignal>

#include "daemon/testing/bench.h"

namespace berth::daemon {

using GuestsTest = DaemonTest;

namespace {

std::string attach(const std::string& uuid = device_uuid()) { return "attach client " + uuid; }
std::string reserve(uint64_t bytes) { return "reserve 0 0 " + std::to_string(bytes); }
std::string release(uint64_t bytes) { return "release 0 0 " + std::to_string(bytes); }
std::string granted(uint64_t bytes, uint64_t left) {
  return "granted " + std::to_string(bytes) + " " + std::to_string(left);
}
std::string over_quota(uint64_t left) { return "over_quota 0 " + std::to_string(left); }

}  // namespace

TEST_F(GuestsTest, AProgramGetsItsQuotaAndNotAByteMore) {
  start();
  Job a = job({{"memory", "8G"}});
  EXPECT_EQ(a.root.say(attach()), "welcome fresh");
  EXPECT_EQ(a.root.say("page 0"),
            std::to_string(8 * kGiB) + " " + std::to_string(8 * kGiB) + " 0 0 " + std::to_string(a.root.pid));
  EXPECT_EQ(a.root.say(reserve(8 * kGiB + 1)), over_quota(8 * kGiB));
  EXPECT_EQ(a.root.say(reserve(8 * kGiB)), granted(8 * kGiB, 0));
  EXPECT_EQ(a.root.say(reserve(1)), over_quota(0));
  EXPECT_EQ(a.root.say(release(kGiB)), "ok");
  EXPECT_EQ(a.root.say(reserve(kGiB)), granted(kGiB, 0));
  EXPECT_EQ(used("python3-1"), 8 * kGiB);
  EXPECT_EQ(events("over_quota").size(), 1u);  // the second one comes too soon to be told
}

TEST_F(GuestsTest, AllProcessesOfAJobShareItsQuotaAndItsView) {
  start();
  Job a = job({{"memory", "8G"}});
  Program child = a.root.spawn(), orphan = a.root.spawn("orphan");
  for (Program* program : {&a.root, &child, &orphan}) EXPECT_EQ(program->say(attach()), "welcome fresh");
  EXPECT_EQ(a.root.say(reserve(3 * kGiB)), granted(3 * kGiB, 5 * kGiB));
  EXPECT_EQ(child.say(reserve(3 * kGiB)), granted(3 * kGiB, 2 * kGiB));
  EXPECT_EQ(orphan.say(reserve(3 * kGiB)), over_quota(2 * kGiB));
  std::string page = orphan.say("page 0");  // B11: a second process sees what the first has taken
  EXPECT_TRUE(
      page.starts_with(std::to_string(8 * kGiB) + " " + std::to_string(2 * kGiB) + " " + std::to_string(6 * kGiB)))
      << page;
  EXPECT_EQ(job_in_ps("python3-1")["clients"].size(), 3u);
}

TEST_F(GuestsTest, TwoProcessesNeverBothWinTheLastBytes) {
  start();
  Job a = job({{"memory", "1G"}});
  Program other = a.root.spawn();
  a.root.say(attach());
  other.say(attach());
  std::string ask = "ask 0 0 " + std::to_string(kGiB);
  for (int round = 0; round < 50; ++round) {
    a.root.tell(ask);
    other.tell(ask);
    a.root.hear();
    other.hear();
    std::string first = a.root.say("answer"), second = other.say("answer");
    EXPECT_NE(first, second);
    bool won = first == granted(kGiB, 0);
    EXPECT_EQ(won ? second : first, over_quota(0));
    // The winner's release is among the packets that are read before the next refusal.
    EXPECT_EQ((won ? a.root : other).say(release(kGiB)), "ok");
  }
}

TEST_F(GuestsTest, AReleaseOnItsWayIsReadBeforeARefusal) {
  start();
  Job a = job({{"memory", "1G"}});
  Program other = a.root.spawn();
  a.root.say(attach());
  other.say(attach());
  EXPECT_EQ(a.root.say(reserve(kGiB)), granted(kGiB, 0));
  // Both packets lie in their sockets before the daemon looks.
  std::promise<void> go;
  asio::post(*loop_, [future = go.get_future().share()] { future.wait(); });
  EXPECT_EQ(other.say("ask 0 0 " + std::to_string(kGiB)), "ok");
  EXPECT_EQ(a.root.say(release(kGiB)), "ok");
  go.set_value();
  EXPECT_EQ(other.say("answer"), granted(kGiB, 0));
}

TEST_F(GuestsTest, WhatAKilledProgramHeldServesOthersOnceTheDriverLetsGo) {
  start();
  Job a = job({{"memory", "8G"}});
  Program victim = a.root.spawn();
  a.root.say(attach());
  victim.say(attach());
  EXPECT_EQ(victim.say(reserve(6 * kGiB)), granted(6 * kGiB, 2 * kGiB));
  gpus_->set(victim.pid, 6 * kGiB);
  pid_t pid = victim.pid;
  // In the middle of a reservation: nobody hears its answer.
  victim.tell("ask 0 0 " + std::to_string(kGiB));
  victim.hear();
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return used("python3-1", "leaving_bytes") == 7 * kGiB; }));
  // They are the job's to give out again, and its programs are shown so.
  std::string page = a.root.say("page 0");
  EXPECT_TRUE(page.starts_with(std::to_string(8 * kGiB) + " " + std::to_string(8 * kGiB) + " 0 ")) << page;
  // The reservation waits while the bytes are leaving, and is granted as soon as NVML no longer lists the process.
  a.root.tell(reserve(8 * kGiB));
  gpus_->remove(pid);
  EXPECT_EQ(a.root.hear(), granted(8 * kGiB, 0));
  EXPECT_EQ(used("python3-1", "leaving_bytes"), 0u);
  EXPECT_EQ(events("client_lost").size(), 1u);
}

TEST_F(GuestsTest, AConnectionThatEndsIsNoDeath) {
  start();
  Job a = job({{"memory", "8G"}});
  a.root.say(attach());
  a.root.say(reserve(2 * kGiB));
  gpus_->set(a.root.pid, 2 * kGiB);
  EXPECT_EQ(a.root.say("refresh"), "ok");
  EXPECT_EQ(a.root.say("close"), "ok");
  EXPECT_TRUE(eventually([&] { return job_in_ps("python3-1")["clients"][0]["state"] == "silent"; }));
  EXPECT_EQ(used("python3-1"), 2 * kGiB);
  EXPECT_EQ(a.root.say(attach()), "welcome fresh");
  EXPECT_EQ(a.root.say("holdings 0 0 " + std::to_string(2 * kGiB) + " 1"), "ok");
  EXPECT_EQ(a.root.say(reserve(6 * kGiB)), granted(6 * kGiB, 0));
  EXPECT_EQ(job_in_ps("python3-1")["clients"].size(), 1u);
}

TEST_F(GuestsTest, AProgramThatIsExecutedAnewHoldsNothing) {
  start();
  Job a = job({{"memory", "8G"}});
  a.root.say(attach());
  a.root.say(reserve(8 * kGiB));
  a.root.tell("exec");
  EXPECT_EQ(a.root.say(attach()), "welcome fresh");
  EXPECT_EQ(a.root.say(reserve(8 * kGiB)), granted(8 * kGiB, 0));
}

TEST_F(GuestsTest, ADeathIsSeenThoughAChildHasInheritedTheConnection) {
  start();
  Job a = job({{"memory", "8G"}});
  Program parent = a.root.spawn();
  parent.say(attach());
  parent.say(reserve(kGiB));
  Program child = parent.spawn("inherit");
  parent.end();
  EXPECT_TRUE(eventually([&] { return used("python3-1") == 0; }));
  child.end();
}

TEST_F(GuestsTest, AFirstContextMayPassASmallQuota) {  // B5
  start();
  Job a = job({{"memory", "64M"}});
  a.root.say(attach());
  EXPECT_TRUE(a.root.say("reserve 0 7 0 1").starts_with("granted 543162368 0"));
  EXPECT_EQ(a.root.say("reserve 0 7 0 1"), over_quota(0));
  EXPECT_EQ(a.root.say(reserve(1)), over_quota(0));
  std::string page = a.root.say("page 0");
  EXPECT_TRUE(page.starts_with(std::to_string(64 * kMiB) + " 0 543162368 0")) << page;
}

TEST_F(GuestsTest, TheOverheadFollowsNvml) {
  start();
  Job a = job({{"memory", "8G"}});
  a.root.say(attach());
  a.root.say("reserve 0 7 0 1");
  a.root.say(reserve(kGiB));
  gpus_->set(a.root.pid, kGiB + 700 * kMiB);
  a.root.say("refresh");
  EXPECT_TRUE(eventually([&] { return used("python3-1", "overhead_bytes") == 700 * kMiB; }));
  EXPECT_EQ(used("python3-1"), kGiB + 700 * kMiB);
  EXPECT_TRUE(events("drift").empty());
  // More than was announced is an event.
  gpus_->set(a.root.pid, kGiB + 900 * kMiB);
  on_loop([&] { return daemon_->gpus.request(), 0; });
  EXPECT_TRUE(eventually([&] { return events("drift").size() == 1; }));
  EXPECT_EQ(used("python3-1", "overhead_bytes"), 900 * kMiB);
}

TEST_F(GuestsTest, AFullDeviceIsReadAgainBeforeARefusal) {
  gpus_->set(1, 12 * kGiB);
  start();
  Job a = job();
  a.root.say(attach());
  EXPECT_EQ(a.root.say(reserve(4 * kGiB)), granted(4 * kGiB, 0));
  gpus_->set(a.root.pid, 4 * kGiB);
  EXPECT_EQ(a.root.say(reserve(kGiB)), "device_full 0 0");
  gpus_->remove(1);
  EXPECT_EQ(a.root.say(reserve(kGiB)), granted(kGiB, 11 * kGiB));
}

TEST_F(GuestsTest, WithoutAQuotaPromisesToOthersStay) {
  start();
  Job promised = job({{"memory", "10G"}}), free_one = job();
  free_one.root.say(attach());
  // 16 GiB less 10 promised and 1 for the driver.
  EXPECT_EQ(free_one.root.say(reserve(5 * kGiB + 1)), "device_full 0 " + std::to_string(5 * kGiB));
  EXPECT_EQ(free_one.root.say(reserve(5 * kGiB)), granted(5 * kGiB, 0));
  promised.root.say(attach());
  EXPECT_EQ(promised.root.say(reserve(10 * kGiB)), granted(10 * kGiB, 0));
}

TEST_F(GuestsTest, StrangersAreRefused) {
  start();
  Program outsider(socket_);
  EXPECT_EQ(outsider.say(attach()), "refused 2");
  Job a = job();
  EXPECT_EQ(a.root.say(attach("ffffffffffffffffffffffffffffffff")), "refused 3");
}

TEST_F(GuestsTest, NoiseEndsTheConnectionAndNothingElse) {
  start();
  Job a = job({{"memory", "8G"}});
  for (int size : {1, 15, 16, 500, 60000}) {
    Program noisy = a.root.spawn();
    noisy.say(attach());
    EXPECT_EQ(noisy.say("noise " + std::to_string(size)), "lost") << size;
    noisy.end();
  }
  for (const char* line : {"reserve 7 0 4096", "reserve 0 99 4096", "release 31 0 1", "holdings 5 0 9 0"}) {
    Program noisy = a.root.spawn();
    noisy.say(attach());
    noisy.tell(line);
    noisy.hear();
    EXPECT_EQ(noisy.say("noise 0"), "lost") << line;
    noisy.end();
  }
  EXPECT_GE(events("malformed_client").size(), 1u);
  a.root.say(attach());
  EXPECT_EQ(a.root.say(reserve(8 * kGiB)), granted(8 * kGiB, 0));
}

TEST_F(GuestsTest, HostileFiguresAreClamped) {
  start();
  Job a = job({{"memory", "4G"}}), b = job({{"memory", "4G"}});
  a.root.say(attach());
  b.root.say(attach());
  EXPECT_EQ(a.root.say(reserve(~0ull)), over_quota(4 * kGiB));
  EXPECT_EQ(a.root.say(release(~0ull)), "ok");
  EXPECT_EQ(a.root.say("reserve 0 0 " + std::to_string(~0ull) + " 2"),
            granted(11 * kGiB + kGiB, 0));  // "taken", b's promise stays
  a.root.say("close");
  a.root.say(attach());
  a.root.say("holdings 0 0 " + std::to_string(~0ull) + " 1");
  EXPECT_EQ(b.root.say(reserve(4 * kGiB)), granted(4 * kGiB, 0));
  EXPECT_EQ(used("python3-1"), 12 * kGiB);
}

TEST_F(GuestsTest, ManyProgramsAttachAtOnce) {  // B35
  start();
  Job a = job({{"memory", "8G"}});
  std::vector<Program> programs;
  for (int i = 0; i < 256; ++i) programs.push_back(a.root.spawn());
  auto before = std::chrono::steady_clock::now();
  for (Program& program : programs) program.tell(attach());
  for (Program& program : programs) EXPECT_EQ(program.hear(), "welcome fresh");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));  // takes well below two
  EXPECT_EQ(job_in_ps("python3-1")["clients"].size(), 256u);
}

TEST_F(GuestsTest, AnEscapedProcessIsChargedToItsJobAndOthersAreUnmanaged) {
  start();
  Job a = job({{"memory", "8G"}});
  Program quiet = a.root.spawn(), outsider(socket_);
  gpus_->set(quiet.pid, 3 * kGiB);
  gpus_->set(1, 2 * kGiB);
  on_loop([&] { return daemon_->gpus.request(), 0; });
  EXPECT_TRUE(eventually([&] { return events("escaped_process").size() == 1; }));
  EXPECT_TRUE(eventually([&] { return used("python3-1") == 3 * kGiB; }));
  EXPECT_NE(a.command->event()["text"].get<std::string>().find("without berth"), std::string::npos);
  EXPECT_EQ(events("unmanaged_process").size(), 1u);
  Json gpus = Command(socket_).ask({{"op", "gpus"}})["devices"][0];
  EXPECT_EQ(gpus["unmanaged_bytes"], 2 * kGiB);
  EXPECT_EQ(gpus["unmanaged"][0]["pid"], 1);
  a.root.say(attach());
  EXPECT_EQ(a.root.say(reserve(6 * kGiB)), over_quota(5 * kGiB));
  // It may still attach, and then counts as any client.
  EXPECT_EQ(quiet.say(attach()), "welcome fresh");
  EXPECT_EQ(used("python3-1"), 3 * kGiB);
}

TEST_F(GuestsTest, AStrictJobEndsItsEscapedProcessAndOnlyThat) {
  start();
  Job strict = job({{"memory", "4G"}, {"strict", true}}), other = job({{"memory", "4G"}});
  Program escaped = strict.root.spawn(), bystander = other.root.spawn();
  gpus_->set(escaped.pid, kGiB);
  gpus_->set(bystander.pid, kGiB);
  on_loop([&] { return daemon_->gpus.request(), 0; });
  EXPECT_EQ(strict.command->event()["event"], "end_job");  // and no message that says the same
  EXPECT_TRUE(eventually([&] { return !read_process(escaped.pid) || read_process(escaped.pid)->ended(); }));
  EXPECT_TRUE(eventually([&] { return events("escaped_process").size() == 2; }));
  EXPECT_EQ(bystander.say("refresh"), "lost");  // lives, has never attached
}

TEST_F(GuestsTest, NoticesBecomeEvents) {
  start();
  Job a = job();
  a.root.say(attach());
  a.root.say("notice 1 3 cuMemNew");
  a.root.say("notice 1 4 cuMemNewer");
  a.root.say("notice 2 4096 -");
  EXPECT_TRUE(eventually([&] { return events("driver_full").size() == 1; }));
  EXPECT_EQ(events("partly_covered").size(), 1u);
  EXPECT_EQ(job_in_ps("python3-1")["clients"][0]["partly_covered"], true);
}

}  // namespace berth::daemon
