// What survives the daemon, and what it does when it comes back.
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "daemon/testing/bench.h"

namespace berth::daemon {

using RestartTest = DaemonTest;

namespace {

const std::string kAttach = "attach client " + device_uuid();
std::string reserve(uint64_t bytes) { return "reserve 0 0 " + std::to_string(bytes); }
std::string holdings(uint64_t bytes, bool last) {
  return "holdings 0 0 " + std::to_string(bytes) + (last ? " 1" : " 0");
}

}  // namespace

TEST_F(RestartTest, JobsComeBackAndClientsBringTheirHoldings) {
  start();
  Job a = job({{"memory", "8G"}, {"name", "mine"}, {"weight", 7}, {"priority", "low"}, {"max_slowdown_ratio", 1.25}});
  Program other = a.root.spawn();
  a.root.say(kAttach);
  other.say(kAttach);
  a.root.say(reserve(3 * kGiB));
  other.say(reserve(2 * kGiB));
  stop();
  start();
  Json back = job_in_ps("mine");
  EXPECT_EQ(back["state"], "running");
  EXPECT_EQ(back["weight"], 7);
  EXPECT_EQ(back["priority"], "low");
  EXPECT_EQ(on_loop([&] { return daemon_->state.jobs.begin()->second.max_slowdown; }), 1.25);
  EXPECT_EQ(back["devices"][0]["quota_bytes"], 8 * kGiB);
  EXPECT_EQ(back["root_pid"], a.root.pid);
  EXPECT_EQ(back["clients"].size(), 2u);
  EXPECT_EQ(a.root.say(kAttach), "welcome restarted");
  a.root.say(holdings(kGiB, false));
  a.root.say(holdings(2 * kGiB, true));
  // Nothing is granted until the other one has reported, too.
  a.root.tell("ask 0 0 " + std::to_string(6 * kGiB));
  a.root.hear();
  EXPECT_EQ(other.say(kAttach), "welcome restarted");
  EXPECT_EQ(other.say(holdings(2 * kGiB, true)), "ok");
  EXPECT_EQ(a.root.say("answer"), "over_quota 0 " + std::to_string(3 * kGiB));
  EXPECT_EQ(a.root.say(reserve(3 * kGiB)), "granted " + std::to_string(3 * kGiB) + " 0");
  EXPECT_EQ(used("mine"), 8 * kGiB);
  // Events go on where they ended.
  EXPECT_EQ(events("daemon_started").size(), 2u);
  EXPECT_LT(events("daemon_started")[0]["id"], events("daemon_started")[1]["id"]);
}

TEST_F(RestartTest, AStoppedProgramIsCountedByNvmlAndHoldsNobodyUp) {
  start();
  Job a = job({{"memory", "8G"}, {"name", "mine"}});
  Program stopped = a.root.spawn();
  a.root.say(kAttach);
  stopped.say(kAttach);
  stopped.say(reserve(5 * kGiB));
  gpus_->set(stopped.pid, 5 * kGiB + 500 * kMiB);
  ::kill(stopped.pid, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return read_process(stopped.pid)->state == 'T'; }));
  stop();
  start();
  on_loop([&] { return daemon_->gpus.request(), 0; });
  EXPECT_TRUE(eventually([&] { return used("mine") == 5 * kGiB + 500 * kMiB; }));
  a.root.say(kAttach);
  a.root.say(holdings(0, true));
  EXPECT_EQ(a.root.say(reserve(3 * kGiB)), "over_quota 0 " + std::to_string(3 * kGiB - 500 * kMiB));
  ::kill(stopped.pid, SIGCONT);
  stopped.say(kAttach);
  stopped.say(holdings(5 * kGiB, true));
  EXPECT_TRUE(eventually([&] { return used("mine") == 5 * kGiB + 500 * kMiB; }));
}

TEST_F(RestartTest, ProcessesThatEndedMeanwhileAreForgotten) {
  start();
  Job a = job({{"name", "gone"}}), b = job({{"name", "stays"}});
  Program client = b.root.spawn();
  client.say(kAttach);
  b.root.say(kAttach);
  a.root.say(kAttach);
  a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}});
  stop();
  client.end();
  a.root.end();
  start();
  // "gone" has a living runner (this process), so it is for the runner to finish it; its client is no more.
  EXPECT_EQ(job_in_ps("gone")["clients"].size(), 0u);
  EXPECT_EQ(job_in_ps("stays")["clients"].size(), 1u);
  Command again(socket_);
  EXPECT_EQ(again.ask({{"op", "start"}, {"job", b.admitted["job"]}, {"pid", b.root.pid}}), Json::object());
  EXPECT_EQ(again.ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}}), Json::object());
  EXPECT_TRUE(eventually([&] { return job_in_ps("gone").is_null(); }));
}

TEST_F(RestartTest, AnotherBootForgetsJobsAndKeepsEvents) {
  start();
  Job a = job({{"name", "mine"}});
  stop();
  {
    Store store;
    ASSERT_TRUE(store.open(settings_.state_file, "another boot").ok());
    EXPECT_TRUE(store.load_jobs()->empty());
    EXPECT_FALSE(store.load_events(100)->empty());
  }
}

TEST_F(RestartTest, AnOrphanOfBeforeLeadsToItsJob) {
  start();
  Program runner(socket_);
  runner.say("subreaper");
  Json admitted = Json::parse(runner.say(R"(control {"op":"admit","command":["x"],"memory":"4G"})"));
  Program root = runner.spawn();
  runner.say("control " + Json{{"op", "start"}, {"job", admitted["job"]}, {"pid", root.pid}}.dump());
  Program client = root.spawn("orphan");
  client.say(kAttach);
  stop();
  runner.end();
  root.end();
  start();
  EXPECT_EQ(job_in_ps("x-1")["state"], "running");
  Program child = client.spawn();
  EXPECT_EQ(child.say(kAttach), "welcome restarted");
  client.say(kAttach);
  client.say(holdings(0, true));
  client.end();
  child.end();
  EXPECT_TRUE(eventually([&] { return job_in_ps("x-1").is_null(); }));
}

TEST_F(RestartTest, AFullDiskRefusesAJobAndLeavesNothing) {
  start();
  Job a = job({{"memory", "4G"}, {"name", "first"}});
  // No file of this process may grow: for the store the same as a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit none{1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  Command command(socket_);
  Json reply = admit(command, {{"memory", "1G"}});
  Json set = command.ask({{"op", "set"}, {"name", "first"}, {"memory", "2G"}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const Json& refused : {reply, set}) {
    ASSERT_TRUE(refused.contains("error")) << refused;
    EXPECT_EQ(refused["error"]["code"], "internal");
    EXPECT_NE(refused["error"]["message"].get<std::string>().find(settings_.state_file), std::string::npos) << refused;
  }
  EXPECT_EQ(ps()["jobs"].size(), 1u);
  // Those who run are not touched, and the daemon recovers.
  a.root.say(kAttach);
  EXPECT_EQ(a.root.say(reserve(4 * kGiB)), "granted " + std::to_string(4 * kGiB) + " 0");
  EXPECT_TRUE(admit(command, {{"memory", "1G"}}).contains("job"));
}

TEST_F(RestartTest, ADamagedStateFileIsNamed) {
  std::ofstream(settings_.state_file) << std::string(5000, 'x');
  asio::io_context loop;
  Daemon daemon(loop, settings_, make_fake_source(gpus_));
  auto status = daemon.open();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(settings_.state_file), std::string::npos);
}

}  // namespace berth::daemon
