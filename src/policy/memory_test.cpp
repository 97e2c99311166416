#include "policy/testing.h"

namespace berth::policy {

TEST(Memory, AQuotaIsOfTheJobOverAllItsClients) {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  EXPECT_EQ(reserve(state, a, 5 * kG).verdict, Verdict::granted);
  Answer no = reserve(state, b, 4 * kG);
  EXPECT_EQ(no.verdict, Verdict::over_quota);
  EXPECT_EQ(no.bytes, 0u);
  EXPECT_EQ(no.available, 3 * kG);
  EXPECT_EQ(reserve(state, b, 3 * kG).available, 0u);
  EXPECT_EQ(release(state, a, 0, Kind::linear, kG, Time(0)), kG);
  EXPECT_EQ(reserve(state, b, kG).verdict, Verdict::granted);
  expect_sums(state);
}

TEST(Memory, WithoutAQuotaAJobMayTakeWhatIsNeitherPromisedNorUsed) {
  State state = make_state();
  state.devices[0].unmanaged = kG;
  JobId alone = admitted(admit(state, ""));
  ClientId client = attach(state, alone, 1);
  EXPECT_EQ(available(state, state.jobs.at(alone), 0), 15 * kG);  // alone it loses no headroom
  admitted(admit(state, "6G"));
  EXPECT_EQ(available(state, state.jobs.at(alone), 0), 8 * kG);  // 16 - 1 unmanaged - 6 promised - 1 headroom
  EXPECT_EQ(reserve(state, client, 8 * kG + 1).verdict, Verdict::device_full);
  EXPECT_EQ(reserve(state, client, 8 * kG).verdict, Verdict::granted);
}

TEST(Memory, AJobHasNothingOnDevicesWhereItWasNotPlaced) {
  State state = make_state(2);
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  DeviceIndex other = state.jobs.at(job).devices[0].placed ? 1 : 0;
  EXPECT_EQ(reserve(state, client, other, {Kind::linear, 1, Force::none}, Time(0)).verdict, Verdict::over_quota);
}

TEST(Memory, OnlyTheFirstContextPassesTheQuota) {  // B5
  State state = make_state();
  JobId job = admitted(admit(state, "64M"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  EXPECT_EQ(reserve(state, a, 0, Kind::overhead).verdict, Verdict::over_quota);
  EXPECT_EQ(reserve(state, a, 0, Kind::overhead, Force::first_context).bytes, kDefaultContextCost);
  EXPECT_EQ(reserve(state, b, 0, Kind::overhead, Force::first_context).verdict, Verdict::over_quota);
  EXPECT_EQ(available(state, state.jobs.at(job), 0), 0u);
  // Not for plain memory, and never into what others were promised.
  EXPECT_EQ(reserve(state, a, kG, Kind::linear, Force::first_context).verdict, Verdict::over_quota);
  State full = make_state(1, 2 * kG);
  JobId tiny = admitted(admit(full, "64M"));
  admitted(admit(full, "960M"));
  full.devices[0].unmanaged = 768 * kM;
  EXPECT_EQ(reserve(full, attach(full, tiny, 1), 0, Kind::overhead, Force::first_context).verdict, Verdict::over_quota);
}

TEST(Memory, WhatTheDriverHasTakenIsCountedAsFarAsItIsNotPromisedToOthers) {
  State state = make_state();
  JobId job = admitted(admit(state, "1G")), other = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  EXPECT_EQ(reserve(state, client, 2 * kG, Kind::pool, Force::taken).bytes, 2 * kG);
  EXPECT_EQ(reserve(state, client, ~0ull, Kind::pool, Force::taken).bytes, 6 * kG);
  EXPECT_EQ(available(state, state.jobs.at(other), 0), 8 * kG);
  expect_sums(state);
}

TEST(Memory, HostileReleasesAreClamped) {
  State state = make_state();
  ClientId client = attach(state, admitted(admit(state, "8G")), 1);
  reserve(state, client, kG);
  EXPECT_EQ(release(state, client, 0, Kind::array, kG, Time(0)), 0u);
  EXPECT_EQ(release(state, client, 0, Kind::linear, ~0ull, Time(0)), kG);
  EXPECT_EQ(release(state, client, 0, Kind::linear, 1, Time(0)), 0u);
  EXPECT_EQ(state.devices[0].used, 0u);
}

TEST(Memory, ImportsAreTheExporters) {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  EXPECT_EQ(reserve(state, client, 12 * kG, Kind::imported, Force::taken).bytes, 12 * kG);
  EXPECT_EQ(state.jobs.at(job).devices[0].used, 0u);
  EXPECT_EQ(reserve(state, client, ~0ull, Kind::imported, Force::taken).verdict, Verdict::granted);
  EXPECT_EQ(reserve(state, client, 8 * kG).verdict, Verdict::granted);
  EXPECT_EQ(release(state, client, 0, Kind::imported, ~0ull, Time(0)), 16 * kG);
  expect_sums(state);
}

TEST(Memory, TheDeadLeaveTheirBytesUntilTheyAreFree) {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2), idle_one = attach(state, job, 3);
  reserve(state, a, 6 * kG);
  client_died(state, a, Time(0));
  client_died(state, a, Time(0));
  EXPECT_EQ(state.jobs.at(job).devices[0].leaving, 6 * kG);
  Answer no = reserve(state, b, 4 * kG);
  EXPECT_EQ(no.verdict, Verdict::over_quota);
  EXPECT_EQ(no.leaving, 6 * kG);
  EXPECT_EQ(available(state, state.jobs.at(job), 0), 2 * kG);
  EXPECT_EQ(available_soon(state, state.jobs.at(job), 0), 8 * kG);
  reserve(state, b, 4 * kG, Kind::linear, Force::taken);  // beyond the quota: nothing is promised twice
  EXPECT_EQ(available_soon(state, state.jobs.at(job), 0), 4 * kG);
  client_died(state, idle_one, Time(0));
  EXPECT_FALSE(state.clients.contains(idle_one));  // nothing to wait for
  expect_sums(state);
}

TEST(Memory, HoldingsReplaceTheAccountAndAreClamped) {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  reserve(state, client, 3 * kG);
  begin_holdings(state, client);
  EXPECT_EQ(state.devices[0].used, 0u);
  add_holding(state, client, 0, Kind::linear, 2 * kG, Time(0));
  add_holding(state, client, 0, Kind::array, kG, Time(0));
  EXPECT_EQ(state.jobs.at(job).devices[0].used, 3 * kG);
  admitted(admit(state, "7G"));
  add_holding(state, client, 0, Kind::pool, ~0ull, Time(0));
  EXPECT_EQ(state.jobs.at(job).devices[0].used, 9 * kG);  // its quota and the headroom, not the other's promise
  expect_sums(state);
}

TEST(Memory, AQuotaSetBelowTheUseLeavesNothingFree) {  // B4, B55
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 1);
  reserve(state, client, 6 * kG);
  EXPECT_TRUE(set_memory(state, job, "2G", Limits()).ok());
  EXPECT_EQ(available(state, state.jobs.at(job), 0), 0u);
  EXPECT_EQ(reserve(state, client, 1).verdict, Verdict::over_quota);
  EXPECT_EQ(promised(state.jobs.at(job), 0), 6 * kG);  // what is held can't be promised to others
  release(state, client, 0, Kind::linear, 5 * kG, Time(0));
  EXPECT_EQ(available(state, state.jobs.at(job), 0), kG);
  EXPECT_TRUE(set_memory(state, job, "15G", Limits()).ok());
  EXPECT_EQ(set_memory(state, job, "17G", Limits()).error().code, "usage");
  EXPECT_TRUE(set_memory(state, job, "0", Limits()).ok());
  EXPECT_EQ(available(state, state.jobs.at(job), 0), 15 * kG);
}

}  // namespace berth::policy
