#include "policy/compute_mode.h"

#include "policy/placement.h"
#include "policy/testing.h"

namespace berth::policy {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

State exclusive(size_t devices = 1) {
  State state = make_state(devices);
  state.devices[0].configured_mode = ComputeMode::exclusive;
  return state;
}

Answer context(State& state, ClientId client, DeviceIndex device = 0, Force force = Force::first_context) {
  return reserve(state, client, device, {Kind::overhead, 0, force}, Time(0));
}

Admission ask_for(State& state, const std::string& device, bool wait = false, const std::string& memory = "1G") {
  Request request = make_request(memory);
  request.device = device;
  request.may_wait = wait;
  return admit(state, request, Limits());
}

bool placed(const State& state, JobId job, DeviceIndex device) { return state.jobs.at(job).devices[device].placed; }

}  // namespace

TEST(ComputeModes, HaveNamesAndNumbers) {
  for (ComputeMode mode : {ComputeMode::shared, ComputeMode::exclusive, ComputeMode::prohibited}) {
    EXPECT_EQ(parse_compute_mode(to_string(mode)), mode);
    EXPECT_EQ(compute_mode_of_driver(driver_compute_mode(mode)), mode);
  }
  EXPECT_EQ(parse_compute_mode("exclusive_process"), ComputeMode::exclusive);
  EXPECT_EQ(parse_compute_mode("exclusive_thread"), ComputeMode::exclusive);
  EXPECT_EQ(parse_compute_mode("Default"), std::nullopt);
  EXPECT_EQ(compute_mode_of_driver(1), ComputeMode::exclusive);
}

TEST(ComputeModes, TheStricterOneHolds) {
  Device device;
  device.configured_mode = ComputeMode::exclusive;
  EXPECT_EQ(compute_mode(device), ComputeMode::exclusive);
  device.card_mode = ComputeMode::prohibited;
  EXPECT_EQ(compute_mode(device), ComputeMode::prohibited);
  device.configured_mode = ComputeMode::shared;
  EXPECT_EQ(compute_mode(device), ComputeMode::prohibited);
}

TEST(ComputeModes, AnExclusiveDeviceTakesOneJob) {
  State state = exclusive();
  JobId first = admitted(admit(state, "1G", false, "first"));
  for (const char* memory : {"1G", ""}) {
    Error error = refused(admit(state, memory));
    EXPECT_EQ(error.code, "refused");
    for (const char* part : {"GPU 0", "compute mode exclusive", "first (alice) has it", "--wait"})
      EXPECT_TRUE(has(error.message, part)) << error.message;
  }
  auto second = admit(state, "2G", true), third = admit(state, "", true);
  EXPECT_TRUE(has(std::get<Queued>(second).waiting_for, "first (alice) has it"));
  EXPECT_TRUE(has(waiting_for(state, std::get<Queued>(third).job), "other jobs wait before"));
  EXPECT_TRUE(admit_waiting(state).empty());
  end_job(state, first);
  EXPECT_TRUE(has(refused(admit(state, "")).message, "2 jobs wait")) << "no overtaking, also without a quota";
  EXPECT_EQ(admit_waiting(state), std::vector<JobId>{std::get<Queued>(second).job});
  end_job(state, std::get<Queued>(second).job);
  EXPECT_EQ(admit_waiting(state), std::vector<JobId>{std::get<Queued>(third).job});
  EXPECT_EQ(state.jobs.at(std::get<Queued>(third).job).devices[0].quota, std::nullopt);
  EXPECT_FALSE(state.jobs.at(std::get<Queued>(third).job).devices[0].wanted);
}

TEST(ComputeModes, APausedJobKeepsItsDevice) {
  State state = exclusive();
  state.jobs.at(admitted(admit(state, "1G"))).state = JobState::paused;
  refused(admit(state, "1G"));
}

TEST(ComputeModes, JobsGoWhereTheyMay) {
  State state = exclusive(3);
  state.devices[2].card_mode = ComputeMode::prohibited;
  JobId first = admitted(admit(state, "1G")), second = admitted(admit(state, "1G")), third = admitted(admit(state, ""));
  EXPECT_TRUE(placed(state, first, 0));
  EXPECT_TRUE(placed(state, second, 1));
  EXPECT_TRUE(placed(state, third, 1));
  Error full = refused(admit(state, "15G"));
  EXPECT_TRUE(has(full.message, "GPU 1 has 14 GiB")) << full.message;
  EXPECT_TRUE(has(full.message, "less or are not free")) << full.message;
  auto queued = admit(state, "15G", true);
  end_job(state, first);
  EXPECT_EQ(admit_waiting(state), std::vector<JobId>{std::get<Queued>(queued).job});
  EXPECT_TRUE(placed(state, std::get<Queued>(queued).job, 0));
}

TEST(ComputeModes, AProhibitedDeviceTakesNoneAndNobodyWaitsForIt) {
  State state = make_state(2);
  state.devices[0].configured_mode = ComputeMode::prohibited;
  for (bool wait : {false, true}) {
    Error error = refused(ask_for(state, "0", wait));
    EXPECT_EQ(error.code, "refused");
    for (const char* part : {"GPU 0 is closed", "compute mode prohibited", "berth's configuration", "--device"})
      EXPECT_TRUE(has(error.message, part)) << error.message;
  }
  EXPECT_TRUE(state.queue.empty());
  EXPECT_TRUE(placed(state, admitted(admit(state, "1G")), 1));
  state.devices[1].card_mode = ComputeMode::prohibited;
  EXPECT_TRUE(has(refused(admit(state, "")).message, "and so are the other devices"));
  EXPECT_TRUE(has(refused(ask_for(state, "1")).message, "set on the card"));
}

TEST(ComputeModes, WhatCouldNeverFitIsStillWrongUsage) {
  State state = exclusive(2);
  state.devices[1].configured_mode = ComputeMode::prohibited;
  state.devices[1].total = 64 * kG;
  admitted(admit(state, "1G"));
  Error error = refused(admit(state, "32G", true));
  EXPECT_EQ(error.code, "usage");
  EXPECT_TRUE(has(error.message, "GPU 0 has 16 GiB")) << error.message;
}

TEST(ComputeModes, AContextIsForOneProcess) {
  State state = exclusive();
  JobId job = admitted(admit(state, "8G"));
  ClientId first = attach(state, job, 1), second = attach(state, job, 2);
  state.clients.at(first).command = "python3";
  EXPECT_EQ(context(state, first).verdict, Verdict::granted);
  EXPECT_EQ(context(state, first).verdict, Verdict::granted) << "a further one of the same process";
  Answer barred = context(state, second);
  EXPECT_EQ(barred.verdict, Verdict::unavailable);
  EXPECT_FALSE(barred.soon);
  EXPECT_EQ(barred.why, "GPU 0 is exclusive and python3 (process 1) of python3-1 (alice) has it");
  EXPECT_EQ(context(state, second, 0, Force::taken).verdict, Verdict::granted) << "the driver has decided already";
}

TEST(ComputeModes, TheDeviceIsFreeAfterTheLastContext) {
  State state = exclusive();
  JobId job = admitted(admit(state, "8G"));
  ClientId first = attach(state, job, 1), second = attach(state, job, 2);
  uint64_t cost = context(state, first).bytes;
  context(state, first);
  release(state, first, 0, Kind::overhead, cost, Time(0));
  EXPECT_EQ(context(state, second).verdict, Verdict::unavailable);
  release(state, first, 0, Kind::overhead, ~0ull, Time(0));  // "no context is left", whatever NVML had added
  EXPECT_EQ(context(state, second).verdict, Verdict::granted);
  EXPECT_EQ(context(state, first).verdict, Verdict::unavailable);
}

TEST(ComputeModes, TheDeadHaveItUntilTheyHaveLetGo) {
  State state = exclusive();
  JobId job = admitted(admit(state, "8G"));
  ClientId first = attach(state, job, 1), second = attach(state, job, 2);
  context(state, first);
  client_died(state, first, Time(0));
  Answer answer = context(state, second);
  EXPECT_EQ(answer.verdict, Verdict::unavailable);
  EXPECT_TRUE(answer.soon);
  begin_reading(state);
  apply_reading(state, 0, {Time(1), 0, true, {}}, Time(2));
  EXPECT_EQ(context(state, second).verdict, Verdict::granted);
}

TEST(ComputeModes, AJobHasItsDeviceBeforeItsFirstContext) {
  State state = exclusive(2);
  JobId owner = admitted(ask_for(state, "0")), other = admitted(ask_for(state, "1"));
  ClientId visitor = attach(state, other, 7);
  EXPECT_EQ(context(state, visitor, 0).verdict, Verdict::unavailable);
  EXPECT_EQ(context(state, visitor, 1).verdict, Verdict::granted);
  end_job(state, owner);
  EXPECT_EQ(context(state, visitor, 0).verdict, Verdict::granted);
  EXPECT_TRUE(has(refused(ask_for(state, "0")).message, "(process 7)")) << "a visitor has it, too";
}

TEST(ComputeModes, ProcessesOfNoJobCount) {
  State state = exclusive();
  JobId job = admitted(admit(state, "1G"));
  ClientId client = attach(state, job, 1);
  state.devices[0].stranger = "Xorg (process 9) of no job";
  EXPECT_EQ(context(state, client).why, "GPU 0 is exclusive and Xorg (process 9) of no job has it");
  end_job(state, job);
  EXPECT_TRUE(has(refused(admit(state, "1G")).message, "Xorg (process 9) of no job has it"));
}

TEST(ComputeModes, DefaultJobsTakeAnExclusiveDeviceByTheirContexts) {
  State state = exclusive();
  Request request = make_request("", "default");
  request.is_default = true;
  JobId fallback = admitted(admit(state, request, Limits()));
  ClientId client = attach(state, fallback, 1);
  JobId job = admitted(admit(state, "1G"));
  EXPECT_EQ(context(state, client).verdict, Verdict::unavailable);
  end_job(state, job);
  EXPECT_EQ(context(state, client).verdict, Verdict::granted);
  refused(admit(state, "1G"));
}

TEST(ComputeModes, NoContextOnAProhibitedDevice) {
  State state = make_state(2);
  state.devices[1].card_mode = ComputeMode::prohibited;
  ClientId client = attach(state, admitted(admit(state, "")), 1);
  Answer answer = context(state, client, 1);
  EXPECT_EQ(answer.verdict, Verdict::unavailable);
  EXPECT_FALSE(answer.soon);
  EXPECT_TRUE(has(answer.why, "GPU 1 is closed"));
  EXPECT_EQ(context(state, client, 0).verdict, Verdict::granted);
}

TEST(ComputeModes, VirtualDevicesAreOfTheirCards) {
  State state = exclusive(3);
  state.devices[1].card_mode = ComputeMode::prohibited;
  JobId job = admitted(admit_gpus(state, 4, "1G"));
  for (DeviceIndex device : {0, 1, 2}) EXPECT_EQ(placed(state, job, device), device != 1);
  ClientId first = attach(state, job, 1), second = attach(state, job, 2);
  auto context_on = [&](ClientId client, uint32_t v) {
    return reserve(state, client, Place(state.jobs.at(job), v), {Kind::overhead, 0, Force::first_context}, Time(0))
        .verdict;
  };
  EXPECT_EQ(context_on(first, 0), Verdict::granted);
  EXPECT_EQ(context_on(first, 2), Verdict::granted) << "another virtual device on the same card";
  EXPECT_EQ(context_on(second, 0), Verdict::unavailable);
  EXPECT_EQ(context_on(second, 1), Verdict::granted) << "its card is open to all";
  EXPECT_TRUE(placed(state, admitted(admit_gpus(state, 2, "1G")), 2)) << "room is on the open card alone";
  expect_sums(state);
}

TEST(ComputeModes, WhatNvmlHadAddedGoesWithTheLastContext) {
  State state = make_state();
  ClientId client = attach(state, admitted(admit(state, "8G")), 1);
  Time now = std::chrono::seconds(10);
  context(state, client);
  begin_reading(state);
  apply_reading(state, 0, {now, 600 * kM, true, {{1, 600 * kM}}}, now);
  uint64_t listed = held(state.clients.at(client).holdings[0]);
  EXPECT_EQ(listed, 600 * kM);
  release(state, client, 0, Kind::overhead, 518 * kM, now);  // of a guest that only knows its own count
  begin_reading(state);
  apply_reading(state, 0, {now, 0, true, {}}, now + kQuiet / 2);
  EXPECT_EQ(held(state.clients.at(client).holdings[0]), 82 * kM) << "it may be making another one";
  apply_reading(state, 0, {now, 0, true, {}}, now + kQuiet);
  EXPECT_EQ(held(state.clients.at(client).holdings[0]), 0u);
  expect_sums(state);
}

}  // namespace berth::policy
