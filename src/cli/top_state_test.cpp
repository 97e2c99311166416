#include "cli/top_state.h"

#include <gtest/gtest.h>

namespace berth::cli {
namespace {

Json top_job(const char* name, double share, uint64_t used, double waited) {
  return {{"name", name},
          {"user", "alice"},
          {"state", "running"},
          {"priority", "normal"},
          {"weight", 100},
          {"gpu_share_ratio", share},
          {"devices", {{{"index", 0}, {"used_bytes", used}, {"quota_bytes", 8}, {"waited_seconds", waited}}}}};
}

const Json kPs = {{"jobs", {top_job("b", 0.2, 30, 1), top_job("a", 0.3, 10, 3), top_job("c", 0.1, 20, 2)}}};

std::string order(TopSort sort) {
  std::string names;
  for (const Json& job : ordered_jobs(kPs, sort)) names += text_cell(job, "name");
  return names;
}

}  // namespace

TEST(TopState, Orders) {
  EXPECT_EQ(order(TopSort::name), "abc");
  EXPECT_EQ(order(TopSort::time), "abc");
  EXPECT_EQ(order(TopSort::memory), "bca");
  EXPECT_EQ(order(TopSort::waited), "acb");
  Json unknown = kPs;
  unknown["jobs"][1]["gpu_share_ratio"] = nullptr;
  EXPECT_EQ(text_cell(ordered_jobs(unknown, TopSort::time).back(), "name"), "a");
}

TEST(TopState, EveryOrderIsReachedByItsKey) {
  TopState state;
  std::string seen;
  for (int i = 0; i < 4; ++i) press_key('s', {}, &state), seen += std::string(to_string(state.sort)) + " ";
  EXPECT_EQ(seen, "time memory waited name ");
}

TEST(TopState, TheSelectionStaysWithTheJob) {
  TopState state;
  auto jobs = ordered_jobs(kPs, TopSort::name);
  keep_selection(jobs, &state);
  EXPECT_EQ(state.selected, "alice/a");
  press_key('k', jobs, &state);  // nothing above
  EXPECT_EQ(state.selected, "alice/a");
  press_key('j', jobs, &state);
  EXPECT_EQ(state.selected, "alice/b");
  keep_selection(ordered_jobs(kPs, TopSort::waited), &state);
  EXPECT_EQ(state.selected, "alice/b");
  EXPECT_EQ(state.place, 2u);
  keep_selection({}, &state);  // the daemon is gone for a moment
  EXPECT_EQ(state.selected, "alice/b");
  jobs.erase(jobs.begin() + 1);  // b ended
  keep_selection(jobs, &state);
  EXPECT_EQ(state.selected, "alice/c");
  press_key('j', jobs, &state);  // nothing below
  EXPECT_EQ(state.selected, "alice/c");
}

TEST(TopState, KeysBecomeRequests) {
  TopState state;
  std::vector<Json> jobs{top_job("a", 0, 0, 0)};
  keep_selection(jobs, &state);
  EXPECT_EQ(*press_key('p', jobs, &state).request, Json({{"op", "pause"}, {"name", "alice/a"}}));
  jobs[0]["state"] = "paused";
  EXPECT_EQ(*press_key('p', jobs, &state).request, Json({{"op", "resume"}, {"name", "alice/a"}}));
  EXPECT_EQ(*press_key('+', jobs, &state).request, Json({{"op", "set"}, {"name", "alice/a"}, {"weight", 125}}));
  EXPECT_EQ(*press_key('-', jobs, &state).request, Json({{"op", "set"}, {"name", "alice/a"}, {"weight", 80}}));
  for (const auto& [before, after] : {std::pair{"low", "normal"}, {"normal", "high"}, {"high", "low"}}) {
    jobs[0]["priority"] = before;
    EXPECT_EQ(*press_key('P', jobs, &state).request, Json({{"op", "set"}, {"name", "alice/a"}, {"priority", after}}));
  }
  EXPECT_TRUE(press_key('q', jobs, &state).quit);
  for (char key : {'x', '\0', '?', 's', 'j', 'k'}) {
    TopStep step = press_key(key, jobs, &state);
    EXPECT_TRUE(!step.quit && !step.request) << key;
  }
  for (char key : {'p', '+', '-', 'P', 'j', 'k'}) EXPECT_FALSE(press_key(key, {}, &state).request) << key;
}

TEST(TopState, AKeyTakesTheNoticeAway) {
  TopState state;
  state.notice = "the job a belongs to another user";
  press_key('j', {}, &state);
  EXPECT_EQ(state.notice, "");
}

TEST(TopState, WeightsGoUpAndBack) {
  for (int64_t weight = 1; weight <= 8000; ++weight) {
    EXPECT_GT(heavier(weight), weight);
    EXPECT_EQ(lighter(heavier(weight)), weight);
  }
  EXPECT_EQ(heavier(100), 125);
  EXPECT_EQ(heavier(1), 2);
  EXPECT_EQ(heavier(9000), 10000);
  EXPECT_EQ(lighter(1), 1);
  TopState state;
  std::vector<Json> jobs{top_job("a", 0, 0, 0)};
  jobs[0]["weight"] = 1;
  EXPECT_FALSE(press_key('-', jobs, &state).request);
  jobs[0]["weight"] = 10000;
  EXPECT_FALSE(press_key('+', jobs, &state).request);
}

TEST(TopState, FiguresOverSeveralDevices) {
  Json job = top_job("a", 0, 10, 1);
  job["devices"].push_back({{"index", 1}, {"used_bytes", 5}, {"quota_bytes", 4}, {"waited_seconds", 7}});
  EXPECT_EQ(job_used_bytes(job), 15u);
  EXPECT_EQ(job_quota_bytes(job), 12u);
  EXPECT_EQ(job_seconds(job, "waited_seconds"), 7);
  EXPECT_FALSE(job_seconds(job, "window_seconds"));
  job["devices"][1]["quota_bytes"] = nullptr;
  EXPECT_FALSE(job_quota_bytes(job));
}

}  // namespace berth::cli
