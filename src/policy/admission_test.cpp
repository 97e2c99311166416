#include "policy/names.h"
#include "policy/testing.h"

namespace berth::policy {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(Admission, QuotasUnmanagedMemoryAndHeadroomMustFit) {
  State state = make_state();
  state.devices[0].unmanaged = kG;
  admitted(admit(state, "8G", false, "first"));
  Error error = refused(admit(state, "7G"));
  EXPECT_EQ(error.code, "refused");
  for (const char* part :
       {"asked for 7 GiB", "GPU 0 has 6 GiB of 16 GiB left", "first (alice) 8 GiB", "driver 1 GiB", "--wait"})
    EXPECT_TRUE(has(error.message, part)) << error.message;
  admitted(admit(state, "6G"));
  EXPECT_EQ(promisable(state, 0), 0u);
  EXPECT_EQ(state.jobs.size(), 2u);  // a refused job leaves nothing behind
}

TEST(Admission, WhatJobsWithoutAQuotaUseCounts) {
  State state = make_state();
  ClientId client = attach(state, admitted(admit(state, "")), 1);
  reserve(state, client, 10 * kG);
  refused(admit(state, "6G"));
  admitted(admit(state, "5G"));
}

TEST(Admission, SharesAreOfTheDevicesTotal) {
  State state = make_state();
  JobId job = admitted(admit(state, "25%"));
  EXPECT_EQ(state.jobs.at(job).devices[0].quota, 4 * kG);
}

TEST(Admission, WhatCanNeverFitIsRefusedAtOnce) {
  State state = make_state();
  Error larger = refused(admit(state, "20G", true));
  EXPECT_EQ(larger.code, "usage");
  EXPECT_TRUE(has(larger.message, "GPU 0 has 16 GiB")) << larger.message;
  Error headroom = refused(admit(state, "15.5G", true));
  EXPECT_EQ(headroom.code, "usage");
  EXPECT_TRUE(state.queue.empty());
  EXPECT_TRUE(has(headroom.message, "at most 15 GiB")) << headroom.message;
  for (const char* text : {"-1", "8X", "200%", "lots"}) EXPECT_EQ(refused(admit(state, text)).code, "usage") << text;
}

TEST(Admission, FirstComeFirstServedWithoutOvertaking) {
  State state = make_state();
  JobId first = admitted(admit(state, "10G"));
  auto second = admit(state, "8G", true), third = admit(state, "1G", true);
  EXPECT_EQ(std::get<Queued>(second).position, 1u);
  EXPECT_EQ(std::get<Queued>(third).position, 2u);
  EXPECT_TRUE(has(waiting_for(state, std::get<Queued>(third).job), "other jobs wait before"));
  Error overtaking = refused(admit(state, "1G"));
  EXPECT_TRUE(has(overtaking.message, "2 jobs wait for")) << overtaking.message;
  EXPECT_TRUE(admit_waiting(state).empty());
  admitted(admit(state, ""));  // no promise, nothing to wait for
  end_job(state, first);
  EXPECT_EQ(admit_waiting(state), (std::vector<JobId>{std::get<Queued>(second).job, std::get<Queued>(third).job}));
  EXPECT_EQ(state.jobs.at(std::get<Queued>(second).job).state, JobState::running);
  EXPECT_TRUE(state.queue.empty());
}

TEST(Admission, AQueueForOneDeviceDoesNotHoldUpAnother) {
  State state = make_state(2);
  Request request = make_request("15G");
  request.device = "0";
  JobId holder = admitted(admit(state, request, Limits()));
  request.may_wait = true;
  EXPECT_TRUE(std::holds_alternative<Queued>(admit(state, request, Limits())));
  request.device = "1";
  JobId other = admitted(admit(state, request, Limits()));
  EXPECT_TRUE(state.jobs.at(other).devices[1].placed);
  // One that gives up leaves nothing behind, and lets the next one forward.
  request.device = "0";
  JobId last = std::get<Queued>(admit(state, request, Limits())).job;
  EXPECT_EQ(queue_position(state, last), 2u);
  end_job(state, state.queue.front());
  EXPECT_EQ(queue_position(state, last), 1u);
  end_job(state, holder);
  EXPECT_EQ(admit_waiting(state), std::vector<JobId>{last});
}

TEST(Admission, EndedJobsHoldWhatIsStillLeaving) {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  reserve(state, client, 3 * kG);
  client_died(state, client, Time(0));
  end_job(state, job);
  EXPECT_EQ(promisable(state, 0), 12 * kG);
}

TEST(Admission, NamesAreUniqueAmongAUsersLivingJobs) {
  State state = make_state();
  JobId first = admitted(admit(state, "1G"));
  EXPECT_EQ(state.jobs.at(first).name, "python3-1");
  EXPECT_EQ(state.jobs.at(admitted(admit(state, "1G"))).name, "python3-2");
  admitted(admit(state, "1G", false, "mine"));
  EXPECT_EQ(refused(admit(state, "1G", false, "mine")).code, "name_in_use");
  EXPECT_EQ(refused(admit(state, "1G", false, "a b")).code, "usage");
  EXPECT_EQ(refused(admit(state, "1G", false, std::string(65, 'a'))).code, "usage");
  Request other = make_request("1G", "mine");
  other.uid = 1001;
  other.user = "bob";
  JobId bobs = admitted(admit(state, other, Limits()));
  EXPECT_EQ(*find_job(state, 1001, "mine"), bobs);
  EXPECT_EQ(find_job(state, 0, "mine").error().code, "usage");  // several
  EXPECT_EQ(*find_job(state, 0, "bob/mine"), bobs);
  EXPECT_EQ(find_job(state, 1001, "python3-1").error().code, "not_permitted");
  EXPECT_EQ(find_job(state, 1000, "nix").error().code, "unknown_job");
  end_job(state, first);
  JobId again = admitted(admit(state, "1G"));
  EXPECT_EQ(state.jobs.at(again).name, "python3-1");
  EXPECT_EQ(*find_job(state, 1000, "python3-1"), again);  // the living one
  Request odd = make_request("1G");
  odd.command = {"/usr/bin/a thing!"};
  EXPECT_EQ(state.jobs.at(admitted(admit(state, odd, Limits()))).name, "a_thing_-1");
}

TEST(Admission, LimitsOfTheConfiguration) {
  State state = make_state();
  Limits limits;
  limits.max_memory = "4G";
  limits.max_jobs = 2;
  limits.max_priority = Priority::normal;
  limits.max_weight = 200;
  auto ask = [&](const std::string& memory, Priority priority = Priority::normal, int64_t weight = 100) {
    Request request = make_request(memory);
    request.priority = priority;
    request.weight = weight;
    return admit(state, request, limits);
  };
  EXPECT_EQ(refused(ask("5G")).code, "limit");
  EXPECT_EQ(refused(ask("1G", Priority::high)).code, "limit");
  EXPECT_EQ(refused(ask("1G", Priority::low, 300)).code, "limit");
  EXPECT_EQ(refused(ask("1G", Priority::low, 0)).code, "usage");
  admitted(ask("3G"));
  EXPECT_EQ(refused(ask("2G")).code, "limit");
  JobId rest = admitted(ask(""));  // the limit is a quota
  EXPECT_EQ(state.jobs.at(rest).devices[0].quota, kG);
  EXPECT_EQ(refused(ask("1M")).code, "limit");  // two jobs are there
  EXPECT_EQ(set_memory(state, rest, "2G", limits).error().code, "limit");
  EXPECT_TRUE(set_memory(state, rest, "512M", limits).ok());
}

TEST(Admission, ALimitThatIsUsedUpOnOneDeviceLeavesTheOthers) {
  State state = make_state(2);
  Limits limits;
  limits.max_memory = "4G";
  Request request = make_request("4G");
  request.device = "0";
  admitted(admit(state, request, limits));
  for (const char* memory : {"2G", ""}) {
    JobId job = admitted(admit(state, make_request(memory), limits));
    EXPECT_TRUE(state.jobs.at(job).devices[1].placed);
    EXPECT_EQ(state.jobs.at(job).devices[1].quota, 2 * kG);  // asked for, or what the first one left
  }
  EXPECT_EQ(refused(admit(state, make_request(""), limits)).code, "limit");
}

TEST(Admission, ADefaultJobNeverEscapesItsLimit) {
  State state = make_state(2);
  Limits limits;
  limits.max_memory = "4G";
  admitted(admit(state, make_request("4G"), limits));
  Request request = make_request("", "default");
  request.is_default = true;
  JobId job = admitted(admit(state, request, limits));
  for (const JobDevice& there : state.jobs.at(job).devices) EXPECT_TRUE(there.placed);
  size_t used_up = state.jobs.begin()->second.devices[0].placed ? 0 : 1;
  EXPECT_EQ(state.jobs.at(job).devices[used_up].quota, 0u);
  EXPECT_EQ(state.jobs.at(job).devices[1 - used_up].quota, 4 * kG);
}

TEST(Admission, RaisingAQuotaNeedsRoom) {
  State state = make_state();
  JobId job = admitted(admit(state, "4G"));
  admitted(admit(state, "8G"));
  Error error = set_memory(state, job, "8G", Limits()).error();
  EXPECT_EQ(error.code, "refused");
  EXPECT_TRUE(has(error.message, "at most 7 GiB")) << error.message;
  EXPECT_TRUE(set_memory(state, job, "7G", Limits()).ok());
}

}  // namespace berth::policy
