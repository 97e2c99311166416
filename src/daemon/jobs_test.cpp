// Jobs: admission, queue, names, permissions, and when they end.
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "daemon/testing/bench.h"

namespace berth::daemon {

using JobsTest = DaemonTest;

namespace {

std::string code_of(const Json& reply) {
  return reply.contains("error") ? reply["error"]["code"].get<std::string>() : "none";
}

}  // namespace

TEST_F(JobsTest, AnAdmittedJobIsShownWithItsPlace) {
  start();
  Job a = job({{"memory", "25%"}, {"priority", "low"}, {"weight", 50}, {"max_share_ratio", 0.5}, {"name", "mine"}});
  EXPECT_EQ(a.admitted["devices"][0]["quota_bytes"], 4 * kGiB);
  EXPECT_EQ(a.admitted["devices"][0]["index"], 0);
  Json shown = job_in_ps("mine");
  EXPECT_EQ(shown["state"], "running");
  EXPECT_EQ(shown["priority"], "low");
  EXPECT_EQ(shown["weight"], 50);
  EXPECT_EQ(shown["max_share_ratio"], 0.5);
  EXPECT_EQ(shown["root_pid"], a.root.pid);
  EXPECT_EQ(shown["command"], (Json{"python3", "train.py"}));
  EXPECT_EQ(shown["devices"][0]["available_bytes"], 4 * kGiB);
  EXPECT_EQ(events("job_admitted").size(), 1u);
}

TEST_F(JobsTest, BadRequestsGetOneClearLine) {
  start();
  Command command(socket_);
  EXPECT_EQ(code_of(admit(command, {{"memory", "8X"}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"memory", 8}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"memory", "17G"}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"priority", "urgent"}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"weight", -1}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"weight", 1.5}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"max_share_ratio", 0}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"name", "../x"}})), "usage");
  EXPECT_EQ(code_of(admit(command, {{"device", "7"}})), "no_device");
  EXPECT_EQ(code_of(admit(command, {{"visible_devices", ""}})), "no_device");
  EXPECT_EQ(code_of(command.ask({{"op", "set"}, {"name", "nix"}})), "unknown_job");
  EXPECT_EQ(code_of(command.ask({{"op", "kill"}, {"name", "nix"}})), "unknown_job");
  EXPECT_EQ(code_of(command.ask({{"op", "dance"}})), "usage");
  EXPECT_EQ(code_of(command.ask({{"op", 5}})), "usage");
  EXPECT_EQ(code_of(command.ask({{"op", "start"}, {"job", 99}, {"pid", 1}})), "unknown_job");
  EXPECT_EQ(code_of(command.ask({{"op", "start"}, {"job", -1}, {"pid", "x"}})), "usage");
  EXPECT_EQ(code_of(command.ask({{"op", "finish"}})), "usage");
  EXPECT_EQ(code_of(command.ask(Json::array())), "usage");
  EXPECT_TRUE(ps()["jobs"].empty());
}

TEST_F(JobsTest, RefusedWithWhoHoldsWhat) {
  start();
  Job a = job({{"memory", "10G"}, {"name", "big"}});
  Command command(socket_);
  Json refused = admit(command, {{"memory", "8G"}});
  EXPECT_EQ(code_of(refused), "refused");
  std::string message = refused["error"]["message"];
  EXPECT_NE(message.find("big (" + a.admitted.value("user", job_in_ps("big")["user"].get<std::string>()) + ") 10 GiB"),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(JobsTest, AJobWaitsItsTurnAndIsToldWhere) {
  start();
  Job a = job({{"memory", "10G"}});
  Command second(socket_), third(socket_);
  second.send({{"op", "admit"}, {"command", {"b"}}, {"memory", "8G"}, {"wait_seconds", -1}});
  EXPECT_EQ(second.event()["position"], 1);
  third.send({{"op", "admit"}, {"command", {"c"}}, {"memory", "1G"}, {"wait_seconds", 600}});
  EXPECT_EQ(third.event()["position"], 2);
  Json waiting = job_in_ps("b-1");
  EXPECT_EQ(waiting["state"], "waiting");
  EXPECT_EQ(waiting["queue_position"], 1);
  EXPECT_TRUE(waiting["devices"].empty());
  EXPECT_EQ(a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}}), Json::object());
  EXPECT_EQ(job_in_ps("b-1")["state"], "waiting");  // the root still lives
  a.root.end();
  EXPECT_EQ(second.reply()["name"], "b-1");
  EXPECT_EQ(third.reply()["name"], "c-1");
  EXPECT_EQ(job_in_ps("b-1")["state"], "running");
}

TEST_F(JobsTest, WaitingEnds) {
  start();
  Job a = job({{"memory", "10G"}});
  Command timed(socket_), killed(socket_), third(socket_);
  auto gone = std::make_unique<Command>(socket_);
  gone->send({{"op", "admit"}, {"command", {"b"}}, {"memory", "8G"}, {"wait_seconds", -1}});
  gone->event();
  EXPECT_EQ(code_of(admit(timed, {{"memory", "8G"}, {"wait_seconds", 0.05}})), "refused");
  killed.send({{"op", "admit"}, {"name", "k"}, {"memory", "8G"}, {"wait_seconds", -1}});
  EXPECT_EQ(killed.event()["position"], 2);
  gone->close();
  EXPECT_EQ(killed.event()["position"], 1);
  EXPECT_EQ(Command(socket_).ask({{"op", "kill"}, {"name", "k"}})["signalled"], 0);
  EXPECT_EQ(code_of(killed.reply()), "refused");
  EXPECT_EQ(ps()["jobs"].size(), 1u);
}

TEST_F(JobsTest, AJobEndsWithItsLastProcess) {
  start();
  Job a = job();
  Program orphan = a.root.spawn("orphan");
  a.root.end();
  EXPECT_EQ(a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 3}}), Json::object());
  EXPECT_EQ(job_in_ps("python3-1")["state"], "running");
  orphan.end();
  EXPECT_TRUE(eventually([&] { return job_in_ps("python3-1").is_null(); }));
  Json ended = job_in_ps("python3-1", true);
  EXPECT_EQ(ended["state"], "ended");
  EXPECT_EQ(ended["exit_code"], 3);
  EXPECT_EQ(events("job_ended").size(), 1u);
}

TEST_F(JobsTest, AJobThatNeverStartsEndsWithItsCommand) {
  start();
  auto command = std::make_unique<Command>(socket_);
  admit(*command, {{"memory", "8G"}});
  EXPECT_EQ(ps()["jobs"].size(), 1u);
  command->close();
  EXPECT_TRUE(eventually([&] { return ps()["jobs"].empty(); }));
}

TEST_F(JobsTest, TheEndOfTheRunnerChangesNothingForTheProgram) {
  start();
  Program runner(socket_);
  runner.say("subreaper");
  Json admitted = Json::parse(runner.say(R"(control {"op":"admit","command":["x"],"memory":"4G"})"));
  Program root = runner.spawn();
  EXPECT_EQ(runner.say("control " + Json{{"op", "start"}, {"job", admitted["job"]}, {"pid", root.pid}}.dump()), "{}");
  Program orphan = root.spawn("orphan");
  EXPECT_EQ(root.say("attach client " + device_uuid()), "welcome fresh");
  on_loop([&] { return daemon_->jobs.tick(), 0; });
  EXPECT_TRUE(
      eventually([&] { return on_loop([&] { return daemon_->jobs.info(admitted["job"]).members.size(); }) == 2; }));
  runner.end();
  EXPECT_EQ(root.say("reserve 0 0 4096"), "granted 4096 " + std::to_string(4 * kGiB - 4096));
  // An orphan that is no client yet still belongs to the job.
  EXPECT_TRUE(
      eventually([&] { return on_loop([&] { return daemon_->jobs.info(admitted["job"]).members.size(); }) == 2; }));
  EXPECT_EQ(orphan.say("attach client " + device_uuid()), "welcome fresh");
  root.end();
  EXPECT_EQ(orphan.say("reserve 0 0 4096").substr(0, 12), "granted 4096");
  orphan.end();
  EXPECT_TRUE(eventually([&] { return job_in_ps("x-1").is_null(); }));
}

TEST_F(JobsTest, AJobInsideAJobIsRefused) {
  start();
  Job a = job();
  Program deep = a.root.spawn("orphan");
  for (Program* inside : {&a.root, &deep})
    EXPECT_EQ(code_of(Json::parse(inside->say(R"(control {"op":"admit","command":["x"]})"))), "nested");
}

TEST_F(JobsTest, OnlyTheRunnersChildCanBeARoot) {
  start();
  Command command(socket_);
  Json admitted = admit(command, {});
  EXPECT_EQ(code_of(command.ask({{"op", "start"}, {"job", admitted["job"]}, {"pid", 1}})), "usage");
  EXPECT_EQ(code_of(command.ask({{"op", "start"}, {"job", admitted["job"]}, {"pid", 99999999}})), "usage");
  Program stranger(socket_);
  std::string start = "control " + Json{{"op", "start"}, {"job", admitted["job"]}, {"pid", stranger.pid}}.dump();
  EXPECT_EQ(code_of(Json::parse(stranger.say(start))), "not_permitted");
  Json request = {{"op", "start"}, {"job", admitted["job"]}, {"pid", stranger.pid}};
  EXPECT_EQ(command.ask(request), Json::object());
  EXPECT_EQ(command.ask(request), Json::object());  // again, as after a reconnect
  EXPECT_EQ(code_of(command.ask({{"op", "start"}, {"job", admitted["job"]}, {"pid", Program(socket_).pid}})), "usage");
}

TEST_F(JobsTest, SetChangesALivingJobAndOnlyLowersFromInside) {
  start();
  Job a = job({{"memory", "4G"}, {"name", "mine"}}), other = job({{"memory", "2G"}, {"name", "other"}});
  Command outside(socket_);
  Json changed = outside.ask({{"op", "set"},
                              {"name", "mine"},
                              {"memory", "6G"},
                              {"weight", 200},
                              {"priority", "high"},
                              {"max_share_ratio", 0.5}});
  EXPECT_EQ(changed["devices"][0]["quota_bytes"], 6 * kGiB);
  EXPECT_EQ(changed["weight"], 200);
  EXPECT_EQ(changed["priority"], "high");
  outside.ask({{"op", "set"}, {"name", "mine"}, {"weight", 200}});  // changes nothing
  std::vector<Json> told = events("job_changed");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0]["message"],
            "mine changed: quota on GPU 0 4 GiB -> 6 GiB, priority normal -> high, weight 100 -> 200, share of GPU time "
            "none -> 50%");
  EXPECT_EQ(told[0]["fields"], (Json{{"devices", {{{"index", 0}, {"quota_bytes", 6 * kGiB}}}},
                                     {"priority", "high"},
                                     {"weight", 200},
                                     {"max_share_ratio", 0.5}}));
  // All or nothing.
  EXPECT_EQ(code_of(outside.ask({{"op", "set"}, {"name", "mine"}, {"memory", "1G"}, {"weight", 0}})), "usage");
  EXPECT_EQ(job_in_ps("mine")["devices"][0]["quota_bytes"], 6 * kGiB);
  EXPECT_EQ(code_of(outside.ask({{"op", "set"}, {"name", "mine"}, {"memory", "15G"}})), "refused");
  EXPECT_EQ(outside.ask({{"op", "set"}, {"name", "mine"}, {"max_share_ratio", nullptr}})["max_share_ratio"], nullptr);
  auto inside = [&](const Json& request) { return Json::parse(a.root.say("control " + request.dump())); };
  EXPECT_EQ(code_of(inside({{"op", "set"}, {"name", "mine"}, {"memory", "7G"}})), "not_permitted");
  EXPECT_EQ(code_of(inside({{"op", "set"}, {"name", "mine"}, {"memory", "0"}})), "not_permitted");
  EXPECT_EQ(code_of(inside({{"op", "set"}, {"name", "mine"}, {"weight", 201}})), "not_permitted");
  EXPECT_EQ(code_of(inside({{"op", "set"}, {"name", "other"}, {"memory", "1G"}})), "not_permitted");
  EXPECT_EQ(code_of(inside({{"op", "kill"}, {"name", "other"}})), "not_permitted");
  EXPECT_EQ(code_of(inside({{"op", "stop"}, {"force", true}})), "not_permitted");
  EXPECT_EQ(inside({{"op", "set"}, {"name", "mine"}, {"memory", "3G"}})["devices"][0]["quota_bytes"], 3 * kGiB);
}

TEST_F(JobsTest, LoweringAQuotaIsSeenByTheProgram) {  // B4, B55
  start();
  Job a = job({{"memory", "4G"}, {"name", "mine"}});
  a.root.say("attach client " + device_uuid());
  a.root.say("reserve 0 0 " + std::to_string(3 * kGiB));
  Command(socket_).ask({{"op", "set"}, {"name", "mine"}, {"memory", "1G"}});
  // The total stays as it was at attach, free is 0.
  std::string page = a.root.say("page 0");
  EXPECT_TRUE(page.starts_with(std::to_string(4 * kGiB) + " 0 " + std::to_string(3 * kGiB))) << page;
}

TEST_F(JobsTest, KillReachesAllProcessesAndNoOthers) {
  start();
  Job a = job({{"name", "mine"}}), other = job({{"name", "other"}});
  Program child = a.root.spawn(), orphan = a.root.spawn("orphan");
  EXPECT_EQ(Command(socket_).ask({{"op", "kill"}, {"name", "mine"}, {"signal", SIGKILL}})["signalled"], 3);
  int status = 0;
  ASSERT_EQ(::waitpid(a.root.pid, &status, 0), a.root.pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  a.root.pid = 0;
  EXPECT_TRUE(eventually([&] {
    return !is_running({orphan.pid, 0}) && (!read_process(orphan.pid) || read_process(orphan.pid)->ended());
  }));
  EXPECT_EQ(other.root.say("release 0 0 1"), "lost");  // lives
  EXPECT_EQ(code_of(Command(socket_).ask({{"op", "kill"}, {"name", "other"}, {"signal", 99}})), "usage");
}

TEST_F(JobsTest, FollowersGetEventsAsTheyHappen) {
  start();
  Command follower(socket_);
  Json past = follower.ask({{"op", "events"}, {"follow", true}});
  EXPECT_EQ(past["events"].back()["kind"], "daemon_started");
  Job a = job();
  EXPECT_EQ(follower.event()["kind"], "job_admitted");
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // events are told by the millisecond
  EXPECT_TRUE(Command(socket_).ask({{"op", "events"}, {"since_seconds", 0}})["events"].empty());
  EXPECT_GE(Command(socket_).ask({{"op", "events"}, {"since_seconds", 1e300}})["events"].size(), 2u);
}

TEST_F(JobsTest, TheLastEventsAreKept) {
  settings_.config.keep_events = 5;
  start();
  Command command(socket_);
  for (int i = 0; i < 20; ++i) admit(command, {{"memory", "17G"}});
  Json kept = command.ask({{"op", "events"}})["events"];
  EXPECT_EQ(kept.size(), 5u);
  EXPECT_EQ(kept.back()["kind"], "job_refused");
  EXPECT_EQ(kept.back()["id"], 21);
}

TEST_F(JobsTest, LongRepliesCome) {
  start();
  std::vector<std::unique_ptr<Command>> commands;
  for (int i = 0; i < 150; ++i) {
    commands.push_back(std::make_unique<Command>(socket_));
    Json reply = admit(*commands.back(), {{"command", {"x", std::string(900, 'y')}}});
    ASSERT_TRUE(reply.contains("job"));
  }
  Json whole = ps();  // several packets
  EXPECT_EQ(whole["jobs"].size(), 150u);
}

TEST_F(JobsTest, TheProgramIsToldItsPlace) {
  gpus_->devices.resize(2);
  gpus_->devices[1].total = 32 * kGiB;
  start();
  Command command(socket_);
  Json large = admit(command, {{"memory", "20G"}});
  EXPECT_EQ(large["devices"][0]["index"], 1);
  EXPECT_EQ(large["visible_devices"], large["devices"][0]["uuid"]);
  EXPECT_EQ(admit(command, {{"memory", "1G"}, {"device", "0"}, {"visible_devices", "1"}})["visible_devices"],
            Command(socket_).ask({{"op", "gpus"}})["devices"][0]["uuid"]);
  EXPECT_EQ(admit(command, {{"memory", "1G"}, {"visible_devices", "0"}})["visible_devices"], nullptr) << "as it was";
  EXPECT_TRUE(admit(command, {{"memory", "1G"}, {"visible_devices", "1,0"}})["visible_devices"].is_string());
}

}  // namespace berth::daemon
