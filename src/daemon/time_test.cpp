// Gates, turns and watch lists of attached programs, as these see them.
#include <csignal>

#include "daemon/testing/bench.h"
#include "daemon/views.h"

namespace berth::daemon {
namespace {

constexpr int kTrack = 2, kHold = 4, kTell = 8;

class TimeTest : public DaemonTest {
 protected:
  // A job whose root has attached and mapped its activity page.
  Job attached(const std::string& priority, const Json& more = Json::object()) {
    Json options{{"priority", priority}};
    options.update(more);
    Job made = job(options);
    EXPECT_EQ(made.root.say("attach client " + device_uuid()), "welcome fresh");
    EXPECT_EQ(made.root.say("map"), "ok");
    return made;
  }
  static std::vector<int> gate(Program& program) {
    std::istringstream text(program.say("gate"));
    std::vector<int> words;
    for (int word = 0; text >> word;) words.push_back(word);
    return words;
  }
  static int bits(Program& program) { return gate(program).at(0); }
  static bool may_run(Program& program) { return gate(program).at(1) == 1; }
  static bool watches(Program& program, const std::string& expected) {
    std::string all;
    return eventually([&] {
             std::string some = program.say("watches");
             all += (all.empty() || some.empty() ? "" : " ") + some;
             return all == expected;
           }) ||
           (ADD_FAILURE() << "told: " << all, false);
  }
  static void work(Program& program, int submitted, int completed = 0) {
    EXPECT_EQ(program.say("work " + std::to_string(submitted) + " " + std::to_string(completed)), "ok");
    EXPECT_EQ(program.say("active"), "ok");
  }
  Json set(const Json& request) {
    Json whole{{"op", "set"}};
    whole.update(request);
    return Command(socket_).ask(whole);
  }
  bool has_timer() {
    return on_loop([&] { return daemon_->time.has_timer(); });
  }
};

}  // namespace

TEST_F(TimeTest, AloneNothingIsAsked) {
  start();
  Job a = attached("normal");
  EXPECT_EQ(bits(a.root), 0);
  work(a.root, 100);
  EXPECT_TRUE(may_run(a.root));
  EXPECT_EQ(bits(a.root), 0);
  Program child = a.root.spawn();  // another client of the same job is no contention, nor is a job without clients
  child.say("attach client " + device_uuid());
  Job other = job();
  EXPECT_EQ(bits(a.root), 0);
  EXPECT_EQ(bits(child), 0);
  EXPECT_EQ(a.root.say("watches"), "");
}

TEST_F(TimeTest, ALowerClientWatchesAHigherOne) {
  start();
  Job low = attached("low"), high = attached("high");
  EXPECT_TRUE(eventually([&] { return bits(low.root) == (kTrack | kHold | kTell); }));
  EXPECT_EQ(gate(low.root), (std::vector<int>{kTrack | kHold | kTell, 1, 0, 200, 100, 10000, 0}));
  EXPECT_TRUE(eventually([&] { return bits(high.root) == (kTrack | kTell); }));
  std::string id = high.root.say("id");
  EXPECT_TRUE(watches(low.root, id + ":higher:0"));
  EXPECT_EQ(high.root.say("watches"), "");
  work(high.root, 3);
  EXPECT_EQ(low.root.say("peek " + id), "3");
  // Its death frees the other at once.
  high.root.end();
  EXPECT_TRUE(watches(low.root, id + ":none"));
  EXPECT_TRUE(eventually([&] { return bits(low.root) == 0; }));
}

TEST_F(TimeTest, PrioritiesChangeLive) {
  start();
  Job a = attached("normal"), b = attached("normal");
  EXPECT_TRUE(eventually([&] { return bits(a.root) == (kTrack | kTell); }));  // equals that have not worked
  EXPECT_EQ(a.root.say("watches"), "");
  std::string id = b.root.say("id");
  EXPECT_TRUE(set({{"name", b.admitted["name"]}, {"priority", "high"}}).contains("name"));
  EXPECT_TRUE(watches(a.root, id + ":higher:0"));
  EXPECT_EQ(bits(a.root) & kHold, kHold);
  set({{"name", b.admitted["name"]}, {"priority", "low"}});
  EXPECT_TRUE(watches(a.root, id + ":none"));
  EXPECT_TRUE(watches(b.root, a.root.say("id") + ":higher:0"));
  EXPECT_EQ(bits(a.root) & kHold, 0);
}

// Nothing comes before work of high priority, so its graphs are left whole.
TEST_F(TimeTest, GraphsAreSplitBelowHighPriorityWhereTheSettingsSaySo) {
  settings_.config.scheduler.split_graphs = true;
  settings_.config.scheduler.latency_target = std::chrono::microseconds(150);
  start();
  Job low = attached("low"), high = attached("high");
  EXPECT_EQ(gate(low.root).at(6), 150) << "known with the welcome";
  EXPECT_EQ(gate(high.root).at(6), 0);
  set({{"name", low.admitted["name"]}, {"priority", "high"}});
  set({{"name", high.admitted["name"]}, {"priority", "normal"}});
  EXPECT_TRUE(eventually([&] { return gate(low.root).at(6) == 0 && gate(high.root).at(6) == 150; }));
}

TEST_F(TimeTest, PeersOfAHeldJobWatchEachOther) {
  start();
  Job low = attached("low");
  Program rank = low.root.spawn();
  rank.say("attach client " + device_uuid());
  rank.say("map");
  EXPECT_EQ(low.root.say("watches"), "");
  Job high = attached("high");
  std::string of_high = high.root.say("id") + ":higher:0", first = low.root.say("id"), second = rank.say("id");
  EXPECT_TRUE(watches(low.root, second + ":peer:0 " + of_high));
  EXPECT_TRUE(watches(rank, first + ":peer:0 " + of_high));
}

TEST_F(TimeTest, APageIsOnlyShownOnceItIsSealed) {
  start();
  Job low = attached("low"), high = job({{"priority", "high"}});
  high.root.say("attach client " + device_uuid());
  EXPECT_TRUE(eventually([&] { return (bits(low.root) & kHold) != 0; }));
  EXPECT_EQ(low.root.say("watches"), "");
  EXPECT_EQ(high.root.say("map"), "ok");
  EXPECT_TRUE(watches(low.root, high.root.say("id") + ":higher:0"));  // and not writable
}

TEST_F(TimeTest, EqualsWithABacklogTakeTurns) {
  start();
  Job a = attached("normal"), b = attached("normal");
  work(a.root, 8);
  work(b.root, 8);
  EXPECT_TRUE(eventually([&] { return bits(a.root) == (kTrack | kHold) && bits(b.root) == (kTrack | kHold); }));
  EXPECT_EQ(gate(a.root).at(3), 1000);
  // Never both, and each in its turn.
  int first = 0, second = 0;
  EXPECT_TRUE(eventually([&] {
    bool both = on_loop([&] {
      auto held = [&](Job& one) {
        Json entry = job_json(*daemon_, daemon_->state.jobs.at(one.admitted["job"].get<policy::JobId>()));
        return entry["devices"][0]["may_run"] == false;
      };
      first += !held(a);
      second += !held(b);
      return !held(a) && !held(b);
    });
    EXPECT_FALSE(both);
    return first > 3 && second > 3;
  }));
}

TEST_F(TimeTest, AnIdleDaemonHasNoTimer) {
  start();
  EXPECT_FALSE(has_timer());
  Job a = attached("normal"), b = attached("normal");
  EXPECT_TRUE(eventually([&] { return !has_timer(); }));
  work(a.root, 1);
  EXPECT_TRUE(eventually([&] { return has_timer() && bits(a.root) == kTrack; }));  // told: no need to tell again
  EXPECT_EQ(bits(b.root), kTrack);
  EXPECT_EQ(a.root.say("work 1 1"), "ok");
  EXPECT_TRUE(eventually([&] { return !has_timer(); }));
  EXPECT_EQ(bits(a.root) & kTell, kTell);
  EXPECT_EQ(bits(b.root) & kTell, kTell);
}

TEST_F(TimeTest, ACapHoldsAJobThatIsAlone) {
  start();
  Job a = attached("normal", {{"max_share_ratio", 0.1}});
  EXPECT_TRUE(eventually([&] { return bits(a.root) == (kTrack | kHold | kTell); }));
  work(a.root, 100);
  EXPECT_TRUE(eventually([&] { return !may_run(a.root); }));
  EXPECT_TRUE(eventually([&] { return may_run(a.root); }));
  EXPECT_EQ(job_in_ps("python3-1")["devices"][0]["held_by"], "max_share");
  EXPECT_GT(job_in_ps("python3-1")["devices"][0]["throttled_seconds"], 0);
  set({{"name", "python3-1"}, {"max_share_ratio", nullptr}});
  EXPECT_TRUE(eventually([&] { return bits(a.root) == 0 && may_run(a.root); }));
}

TEST_F(TimeTest, PeopleSeeWhoHoldsAJob) {
  start();
  Job low = attached("low", {{"name", "train"}}), high = attached("high", {{"name", "serve"}});
  work(low.root, 4);
  EXPECT_TRUE(eventually([&] { return job_in_ps("train")["devices"][0]["waited_seconds"] == 0; }));
  low.root.say("show 0 1 " + high.root.say("id") + " 50");
  EXPECT_TRUE(eventually([&] { return job_in_ps("train")["devices"][0]["held_by"] == "serve"; }));
  EXPECT_GT(job_in_ps("train")["devices"][0]["waited_seconds"], 0);
  EXPECT_EQ(job_in_ps("train")["devices"][0]["window_seconds"], 0.0002);
  EXPECT_TRUE(job_in_ps("train")["gpu_share_ratio"].is_number());
  low.root.say("show 0 1 999999 60");  // nobody of that number
  EXPECT_EQ(job_in_ps("train")["devices"][0]["held_by"], "serve");
}

TEST_F(TimeTest, AHostilePageHarmsNobody) {
  start();
  Job hostile = attached("high"), low = attached("low"), other = attached("low");
  EXPECT_EQ(hostile.root.say("scribble 7"), "ok");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(hostile.root.say("active"), "ok");
  EXPECT_TRUE(eventually([&] { return events("implausible_client").size() == 1; }));
  std::string id = hostile.root.say("id");
  EXPECT_TRUE(watches(low.root, id + ":higher:0 " + id + ":none"));
  work(low.root, 4);
  EXPECT_TRUE(eventually([&] { return may_run(low.root); }));
  EXPECT_EQ(other.root.say("reserve 0 0 4096").substr(0, 7), "granted");
}

TEST_F(TimeTest, ANewConnectionMeansANewPage) {
  start();
  Job low = attached("low"), high = attached("high");
  std::string id = high.root.say("id");
  EXPECT_TRUE(watches(low.root, id + ":higher:0"));
  EXPECT_EQ(high.root.say("attach client " + device_uuid()), "welcome fresh");
  EXPECT_TRUE(watches(low.root, id + ":none"));  // until the new one is mapped
  EXPECT_EQ(high.root.say("map"), "ok");
  EXPECT_TRUE(watches(low.root, id + ":higher:0"));
  work(high.root, 6);
  EXPECT_EQ(low.root.say("peek " + id), "6");
  EXPECT_EQ(low.root.say("attach client " + device_uuid()), "welcome fresh");
  EXPECT_EQ(low.root.say("map"), "ok");
  EXPECT_TRUE(watches(low.root, id + ":higher:0"));  // told again
}

TEST_F(TimeTest, APausedJobIsHeldWithoutException) {
  start();
  Job a = attached("normal", {{"name", "mine"}}), other = job({{"name", "other"}});
  a.root.say("reserve 0 0 4096");
  Command command(socket_);
  EXPECT_EQ(command.ask({{"op", "pause"}, {"name", "mine"}})["state"], "paused");
  EXPECT_EQ(gate(a.root), (std::vector<int>{kTrack | kHold | kTell, 0, 1, 1000, 0, 10000, 0}));
  Json shown = job_in_ps("mine");
  EXPECT_EQ(shown["state"], "paused");
  EXPECT_EQ(shown["devices"][0]["held_by"], "paused");
  EXPECT_GT(shown["devices"][0]["used_bytes"], 0);  // its memory stays
  EXPECT_EQ(command.ask({{"op", "pause"}, {"name", "mine"}})["state"], "paused");
  EXPECT_EQ(events("job_paused").size(), 1u);
  // From inside only lowering; and not of others.
  auto inside = [&](const char* op, const char* name) {
    return Json::parse(a.root.say("control " + Json{{"op", op}, {"name", name}}.dump()));
  };
  EXPECT_EQ(inside("resume", "mine")["error"]["code"], "not_permitted");
  EXPECT_EQ(inside("pause", "other")["error"]["code"], "not_permitted");
  // It outlives the daemon.
  stop();
  start();
  EXPECT_EQ(job_in_ps("mine")["state"], "paused");
  EXPECT_EQ(a.root.say("attach client " + device_uuid()), "welcome restarted");
  EXPECT_TRUE(eventually([&] { return gate(a.root).at(2) == 1; }));
  EXPECT_EQ(Command(socket_).ask({{"op", "resume"}, {"name", "mine"}})["state"], "running");
  EXPECT_EQ(gate(a.root), (std::vector<int>{0, 1, 0, 0, 0, 10000, 0}));
  EXPECT_EQ(events("job_resumed").size(), 1u);
  EXPECT_EQ(a.root.say("hang_up"), "ok");  // that connection was the old daemon's
  EXPECT_EQ(inside("pause", "mine")["state"], "paused");
}

TEST_F(TimeTest, OnlyLivingJobsArePaused) {
  start();
  Job a = job({{"memory", "14G"}, {"name", "big"}});
  Command waiting(socket_), command(socket_);
  waiting.send({{"op", "admit"}, {"command", {"x"}}, {"memory", "14G"}, {"name", "late"}, {"wait_seconds", -1}});
  EXPECT_TRUE(eventually([&] { return job_in_ps("late").is_object(); }));
  EXPECT_EQ(command.ask({{"op", "pause"}, {"name", "late"}})["error"]["code"], "refused");
  EXPECT_EQ(command.ask({{"op", "resume"}, {"name", "none"}})["error"]["code"], "unknown_job");
}

TEST_F(TimeTest, TheLatencyBudgetIsSetLive) {
  start();
  Job a = attached("high", {{"name", "serve"}, {"max_slowdown_ratio", 1.5}});
  EXPECT_EQ(job_in_ps("serve")["max_slowdown_ratio"], 1.5);
  EXPECT_EQ(set({{"name", "serve"}, {"max_slowdown_ratio", 1}})["max_slowdown_ratio"], 1.0);
  EXPECT_EQ(set({{"name", "serve"}, {"max_slowdown_ratio", nullptr}})["max_slowdown_ratio"], 1.1);
  EXPECT_EQ(set({{"name", "serve"}, {"max_slowdown_ratio", 0.9}})["error"]["code"], "usage");
  EXPECT_EQ(events("job_changed").size(), 2u);
  EXPECT_EQ(events("job_changed")[0]["message"], "serve changed: slowdown 1.5 -> 1.0");
  auto inside = [&](double ratio) {
    Json request{{"op", "set"}, {"name", "serve"}, {"max_slowdown_ratio", ratio}};
    return Json::parse(a.root.say("control " + request.dump()));
  };
  EXPECT_EQ(inside(1.05)["error"]["code"], "not_permitted");
  EXPECT_EQ(inside(2)["max_slowdown_ratio"], 2.0);
}

}  // namespace berth::daemon
