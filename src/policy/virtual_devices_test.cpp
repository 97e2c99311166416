#include "policy/virtual_devices.h"

#include "policy/testing.h"

namespace berth::policy {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<DeviceIndex> devices_of(const State& state, JobId job) {
  std::vector<DeviceIndex> devices;
  for (const VirtualDevice& part : state.jobs.at(job).virtual_devices) devices.push_back(part.device);
  return devices;
}

Answer reserve_on(State& state, ClientId client, uint32_t v, const Ask& ask, Time now = Time(0)) {
  return reserve(state, client, Place(state.jobs.at(state.clients.at(client).job), v), ask, now);
}

uint64_t used_on(const State& state, JobId job, uint32_t v) { return state.jobs.at(job).virtual_devices[v].used; }

}  // namespace

TEST(VirtualDevices, QuotasAreOfEachAndTheirSumMustFit) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 3, "4G"));
  EXPECT_EQ(devices_of(state, job), (std::vector<DeviceIndex>{0, 0, 0}));
  EXPECT_EQ(state.jobs.at(job).devices[0].quota, 12 * kG);
  for (const VirtualDevice& part : state.jobs.at(job).virtual_devices) EXPECT_EQ(part.quota, 4 * kG);
  EXPECT_EQ(promisable(state, 0), 3 * kG);
  Error error = refused(admit_gpus(state, 2, "2G"));
  EXPECT_EQ(error.code, "refused");
  EXPECT_TRUE(
      has(error.message, "asked for 2 virtual devices of 2 GiB (4 GiB in all), but GPU 0 has 3 GiB of 16 GiB left"))
      << error.message;
  EXPECT_TRUE(has(error.message, "; there is room for 1 of them; wait for room with --wait")) << error.message;
  admitted(admit_gpus(state, 1, "3G"));  // one is a virtual device too
  expect_sums(state);
}

TEST(VirtualDevices, WithoutAQuotaEachGetsAnEqualPartOfTheDevice) {
  State state = make_state();
  state.devices[0].unmanaged = 100 * kM;
  JobId job = admitted(admit_gpus(state, 7, ""));
  uint64_t each = state.jobs.at(job).virtual_devices[0].quota;
  EXPECT_EQ(each % (2 * kM), 0u);
  EXPECT_EQ(each, (15 * kG - 100 * kM) / 7 / (2 * kM) * (2 * kM));
  EXPECT_LT(promisable(state, 0), 7 * 2 * kM);
  State small = make_state(1, kG);
  EXPECT_EQ(refused(admit_gpus(small, 4, "")).code, "usage");  // all of it is headroom
}

TEST(VirtualDevices, APercentageIsOfTheDeviceEachLiesOn) {
  State state = make_state(2);
  state.devices[1].total = 8 * kG;
  JobId job = admitted(admit_gpus(state, 4, "40%"));
  EXPECT_EQ(devices_of(state, job), (std::vector<DeviceIndex>{0, 1, 0, 1}));
  EXPECT_EQ(state.jobs.at(job).virtual_devices[0].quota, 16 * kG / 100 * 40 + 16 * kG % 100 * 40 / 100);
  EXPECT_EQ(state.jobs.at(job).virtual_devices[1].quota, 8 * kG / 100 * 40 + 8 * kG % 100 * 40 / 100);
}

TEST(VirtualDevices, SeveralDevicesShareThemEvenlyAndTheFirstOnesLieApart) {
  State state = make_state(3);
  EXPECT_EQ(devices_of(state, admitted(admit_gpus(state, 7, "1G"))), (std::vector<DeviceIndex>{0, 1, 2, 0, 1, 2, 0}));
  // Most room first: devices 1 and 2 have more left now.
  EXPECT_EQ(devices_of(state, admitted(admit_gpus(state, 2, "1G"))), (std::vector<DeviceIndex>{1, 2}));
  Request request = make_request("1G");
  request.gpus = 3;
  request.visible_devices = "2,0";
  EXPECT_EQ(devices_of(state, admitted(admit(state, request, Limits()))),
            (std::vector<DeviceIndex>{2, 0, 0}));  // fewer jobs on 0
  request.device = "1";
  JobId there = admitted(admit(state, request, Limits()));
  EXPECT_EQ(devices_of(state, there), (std::vector<DeviceIndex>{1, 1, 1}));
  EXPECT_FALSE(state.jobs.at(there).devices[0].placed);
}

TEST(VirtualDevices, WhereRoomIsEqualTheFewestJobsAre) {
  std::vector<Slot> slots = {{0, kG, 4 * kG, ~0ull, 2}, {1, kG, 4 * kG, ~0ull, 1}, {2, kG, 3 * kG, ~0ull, 0}};
  EXPECT_EQ(spread(slots, 1), std::vector<DeviceIndex>{1});
  EXPECT_EQ(spread(slots, 2), (std::vector<DeviceIndex>{0, 1}));
  EXPECT_EQ(spread(slots, 11).size(), 11u);
  EXPECT_TRUE(spread(slots, 12).empty());
  EXPECT_EQ(count_of(slots), 11u);
  slots[0].most = 0;
  EXPECT_EQ(spread(slots, 3), (std::vector<DeviceIndex>{1, 2, 1}));
}

TEST(VirtualDevices, WhatNeverFitsSoManyTimesIsWrongUsage) {
  State state = make_state();
  Error error = refused(admit_gpus(state, 4, "4G", true));
  EXPECT_EQ(error.code, "usage");
  EXPECT_TRUE(has(error.message, "asked for 4 virtual devices of 4 GiB (16 GiB in all), but GPU 0 has 16 GiB"))
      << error.message;
  EXPECT_TRUE(has(error.message, "at most 3840 MiB each")) << error.message;
  EXPECT_TRUE(state.queue.empty());
  admitted(admit_gpus(state, 4, "3840M"));
  State two = make_state(2);
  Error more = refused(admit_gpus(two, 4, "8G"));
  EXPECT_EQ(more.code, "usage");
  EXPECT_TRUE(
      has(more.message, "4 virtual devices of 8 GiB (32 GiB in all), but the 2 devices have 32 GiB, of which 2 GiB"))
      << more.message;
  EXPECT_TRUE(has(more.message, ": 2 of them would fit; ask for fewer")) << more.message;
  EXPECT_EQ(refused(admit_gpus(two, 32, std::to_string(1ull << 62))).code, "usage");
  EXPECT_TRUE(has(refused(admit_gpus(two, 1, "16G")).message, "none of them would fit"));
  for (int64_t count : {int64_t{0}, int64_t{-1}, int64_t{33}, int64_t{1} << 40}) {
    Error range = refused(admit_gpus(state, count, "1M"));
    EXPECT_EQ(range.code, "usage");
    EXPECT_TRUE(has(range.message, "1 to 32")) << range.message;
  }
}

TEST(VirtualDevices, AJobWithThemWaitsAndIsNotOvertaken) {
  State state = make_state();
  JobId first = admitted(admit(state, "10G"));
  auto second = admit_gpus(state, 2, "4G", true);
  JobId waiting = std::get<Queued>(second).job;
  EXPECT_TRUE(has(std::get<Queued>(second).waiting_for, "2 virtual devices of 4 GiB"))
      << std::get<Queued>(second).waiting_for;
  EXPECT_TRUE(state.jobs.at(waiting).virtual_devices.empty());
  EXPECT_EQ(promised(state.jobs.at(waiting), 0), 0u);
  Error error = refused(admit_gpus(state, 2, "1G"));
  EXPECT_TRUE(has(error.message, "1 job waits for room before this one")) << error.message;
  EXPECT_TRUE(admit_waiting(state).empty());
  end_job(state, first);
  EXPECT_EQ(admit_waiting(state), std::vector<JobId>{waiting});
  EXPECT_EQ(devices_of(state, waiting).size(), 2u);
  EXPECT_EQ(state.jobs.at(waiting).devices[0].quota, 8 * kG);
  expect_sums(state);
}

TEST(VirtualDevices, ComputeModesHoldForTheDevicesTheyLieOn) {
  State state = make_state(3);
  state.devices[0].card_mode = ComputeMode::prohibited;
  state.devices[1].configured_mode = ComputeMode::exclusive;
  JobId job = admitted(admit_gpus(state, 4, "4G"));
  EXPECT_EQ(devices_of(state, job), (std::vector<DeviceIndex>{1, 2, 1, 2}));
  Error error = refused(admit_gpus(state, 3, "4G"));  // device 1 is that job's alone now
  EXPECT_EQ(error.code, "refused");
  EXPECT_TRUE(has(error.message, "GPU 2 has 7 GiB of 16 GiB left")) << error.message;
  EXPECT_TRUE(has(error.message, "less or are not free; there is room for 1 of them")) << error.message;
  EXPECT_EQ(devices_of(state, admitted(admit_gpus(state, 1, "4G"))), std::vector<DeviceIndex>{2});
  EXPECT_EQ(refused(admit_gpus(state, 7, "4G")).code, "usage");  // the prohibited one never has room
  // A second process of the job is refused a context on the exclusive one.
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  EXPECT_EQ(reserve_on(state, a, 0, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::granted);
  EXPECT_EQ(reserve_on(state, b, 2, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::unavailable);
  EXPECT_EQ(reserve_on(state, b, 1, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::granted);
  expect_sums(state);
}

TEST(VirtualDevices, AUsersLimitIsOfTheSumOnADevice) {
  State state = make_state(2);
  Limits limits;
  limits.max_memory = "6G";
  Request request = make_request("2G");
  request.gpus = 7;
  Error error = refused(admit(state, request, limits));
  EXPECT_EQ(error.code, "limit");
  EXPECT_TRUE(has(error.message, "room for 6 of them")) << error.message;
  request.gpus = 5;
  JobId job = admitted(admit(state, request, limits));
  EXPECT_EQ(set_memory(state, job, "3G", limits).error().code, "limit");
  EXPECT_TRUE(set_memory(state, job, "1G", limits).ok());
  request.gpus = 3;
  request.memory = "";
  request.device = "0";  // where 3 of 6 GiB are taken
  EXPECT_EQ(state.jobs.at(admitted(admit(state, request, limits))).devices[0].quota, 3 * kG);
  // What waits keeps to the limit when there is room at last, even if one device has most of it.
  State full = make_state(2);
  Request other = make_request("15G");
  other.uid = 1;
  std::vector<JobId> blocks = {admitted(admit(full, other, Limits())), admitted(admit(full, other, Limits()))};
  request = make_request("3G");
  request.gpus = 4;
  request.may_wait = true;
  JobId waiting = std::get<Queued>(admit(full, request, limits)).job;
  end_job(full, blocks[0]);
  EXPECT_TRUE(admit_waiting(full).empty());
  end_job(full, blocks[1]);
  EXPECT_EQ(admit_waiting(full), std::vector<JobId>{waiting});
  EXPECT_EQ(devices_of(full, waiting), (std::vector<DeviceIndex>{0, 1, 0, 1}));
}

TEST(VirtualDevices, EachHasItsOwnQuota) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 2, "4G"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  EXPECT_EQ(reserve_on(state, a, 0, {Kind::linear, 3 * kG}).available, kG);
  Answer no = reserve_on(state, b, 0, {Kind::linear, 2 * kG});  // the other one is empty
  EXPECT_EQ(no.verdict, Verdict::over_quota);
  EXPECT_EQ(no.available, kG);
  EXPECT_EQ(reserve_on(state, b, 1, {Kind::linear, 4 * kG}).verdict, Verdict::granted);
  EXPECT_EQ(release(state, b, Place(state.jobs.at(job), 0), Kind::linear, kG, Time(0)), 0u);  // b holds nothing there
  EXPECT_EQ(release(state, b, Place(state.jobs.at(job), 1), Kind::linear, kG, Time(0)), kG);
  EXPECT_EQ(available(state, state.jobs.at(job), 0), 2 * kG);
  expect_sums(state);
}

TEST(VirtualDevices, TheFirstContextOfEachMayPassItsQuotaButNotIntoAnothersPromise) {
  State state = make_state(1, 4 * kG);
  JobId job = admitted(admit_gpus(state, 2, "64M"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  EXPECT_EQ(reserve_on(state, a, 0, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::granted);
  EXPECT_EQ(reserve_on(state, a, 1, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::granted);
  EXPECT_EQ(reserve_on(state, b, 0, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::over_quota);
  EXPECT_EQ(promised(state.jobs.at(job), 0), 2 * kDefaultContextCost);
  // One that passes its quota takes nothing of what the other one was promised.
  State tight = make_state(1, 2 * kG);
  JobId two = admitted(admit_gpus(tight, 2, "512M"));
  tight.devices[0].unmanaged = kG;
  ClientId client = attach(tight, two, 1);
  reserve_on(tight, client, 0, {Kind::linear, 512 * kM});
  EXPECT_EQ(reserve_on(tight, client, 0, {Kind::overhead, 0, Force::first_context}).verdict, Verdict::over_quota);
  EXPECT_EQ(reserve_on(tight, client, 0, {Kind::pool, 100 * kM, Force::taken}).bytes, 0u);
  EXPECT_EQ(reserve_on(tight, client, 1, {Kind::linear, 512 * kM}).verdict, Verdict::granted);
  expect_sums(tight);
}

TEST(VirtualDevices, AFullDeviceIsTheDevicesFault) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 2, "4G"));
  ClientId client = attach(state, job, 1), dead = attach(state, job, 2);
  reserve_on(state, dead, 1, {Kind::linear, kG});
  client_died(state, dead, Time(0));
  state.devices[0].unmanaged = 14 * kG;
  Answer no = reserve_on(state, client, 0, {Kind::linear, 2 * kG});
  EXPECT_EQ(no.verdict, Verdict::device_full);
  EXPECT_EQ(no.available, kG);
  EXPECT_EQ(no.leaving, kG);  // of the other virtual device, and yet of this device
  EXPECT_EQ(reserve_on(state, client, 0, {Kind::linear, 5 * kG}).verdict, Verdict::over_quota);
}

TEST(VirtualDevices, TheDeadLeaveEachItsOwn) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 2, "4G"));
  ClientId a = attach(state, job, 1), b = attach(state, job, 2);
  reserve_on(state, a, 0, {Kind::linear, 3 * kG});
  reserve_on(state, a, 1, {Kind::array, kG});
  reserve_on(state, b, 1, {Kind::linear, 2 * kG});
  client_died(state, a, Time(0));
  EXPECT_EQ(state.jobs.at(job).virtual_devices[0].leaving, 3 * kG);
  EXPECT_EQ(available_soon(state, state.jobs.at(job), Place(state.jobs.at(job), 0)), 4 * kG);
  EXPECT_EQ(available_soon(state, state.jobs.at(job), Place(state.jobs.at(job), 1)), 2 * kG);
  Answer no = reserve_on(state, b, 0, {Kind::linear, 2 * kG});
  EXPECT_EQ(no.leaving, 3 * kG);
  expect_sums(state);
  begin_reading(state);
  apply_reading(state, 0, {Time(1), 2 * kG, true, {{2, 2 * kG}}}, Time(2));
  EXPECT_EQ(used_on(state, job, 0), 0u);
  EXPECT_EQ(used_on(state, job, 1), 2 * kG);
  expect_sums(state);
}

TEST(VirtualDevices, NvmlsCorrectionsGoToTheOneOfTheFirstContext) {
  State state = make_state(2);
  JobId job = admitted(admit_gpus(state, 4, "3G"));  // 0 and 2 on device 0
  ClientId client = attach(state, job, 1);
  reserve_on(state, client, 2, {Kind::overhead, 100 * kM});
  reserve_on(state, client, 0, {Kind::overhead, 200 * kM});
  reserve_on(state, client, 0, {Kind::linear, kG});
  auto read = [&](uint64_t bytes, Time now) {
    begin_reading(state);
    apply_reading(state, 0, {now, bytes, true, {{1, bytes}}}, now);
    expect_sums(state);
  };
  read(kG + 500 * kM, Time(1));
  EXPECT_EQ(used_on(state, job, 2), 300 * kM);
  EXPECT_EQ(used_on(state, job, 0), kG + 200 * kM);
  // Less than all accounts say: the first context's is the last to go.
  read(kG + 250 * kM, 3 * kQuiet);
  EXPECT_EQ(used_on(state, job, 0), kG);
  EXPECT_EQ(used_on(state, job, 2), 250 * kM);
  // Once that context is gone, what is left is the other one's.
  reserve_on(state, client, 0, {Kind::overhead, 50 * kM});
  release(state, client, Place(state.jobs.at(job), 2), Kind::overhead, ~0ull, Time(3 * kQuiet));
  EXPECT_EQ(used_on(state, job, 2), 0u);
  read(kG + 80 * kM, 3 * kQuiet);
  EXPECT_EQ(used_on(state, job, 0), kG + 80 * kM);
  // A process that uses the device unattached has no context that we know: the first one there is charged.
  ClientId stranger = attach(state, job, 9);
  state.clients.at(stranger).state = ClientState::escaped;
  begin_reading(state);
  apply_reading(state, 1, {Time(5 * kQuiet), kG, true, {{9, kG}}}, Time(5 * kQuiet));
  EXPECT_EQ(used_on(state, job, 1), kG);
  EXPECT_EQ(used_on(state, job, 3), 0u);
  expect_sums(state);
}

TEST(VirtualDevices, HoldingsComeBackByVirtualDevice) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 2, "4G"));
  ClientId client = attach(state, job, 1);
  reserve_on(state, client, 0, {Kind::overhead, 100 * kM});
  reserve_on(state, client, 0, {Kind::imported, kG, Force::taken});
  begin_holdings(state, client);
  EXPECT_EQ(state.devices[0].used, 0u);
  EXPECT_EQ(bytes_of(state.clients.at(client), Place(state.jobs.at(job), 0), Kind::imported), 0u);
  add_holding(state, client, Place(state.jobs.at(job), 1), Kind::overhead, 100 * kM, Time(0));
  add_holding(state, client, Place(state.jobs.at(job), 0), Kind::linear, ~0ull, Time(0));
  // Its quota and what nobody was promised, not what the other one was.
  EXPECT_EQ(used_on(state, job, 0), 12 * kG);
  EXPECT_EQ(available(state, state.jobs.at(job), Place(state.jobs.at(job), 1)), 4 * kG - 100 * kM);
  EXPECT_EQ(state.clients.at(client).holdings[0].home, 1u);
  expect_sums(state);
}

TEST(VirtualDevices, AnotherQuotaIsForEach) {
  State state = make_state();
  JobId job = admitted(admit_gpus(state, 3, "2G"));
  ClientId client = attach(state, job, 1);
  reserve_on(state, client, 0, {Kind::linear, 2 * kG});
  EXPECT_TRUE(set_memory(state, job, "1G", Limits()).ok());
  EXPECT_EQ(state.jobs.at(job).devices[0].quota, 3 * kG);
  EXPECT_EQ(available(state, state.jobs.at(job), Place(state.jobs.at(job), 0)), 0u);
  EXPECT_EQ(available(state, state.jobs.at(job), Place(state.jobs.at(job), 1)), kG);
  EXPECT_EQ(promised(state.jobs.at(job), 0), 4 * kG);  // what the first one holds can't be promised to others
  admitted(admit(state, "5G"));
  Error error = set_memory(state, job, "4G", Limits()).error();
  EXPECT_EQ(error.code, "refused");
  EXPECT_TRUE(has(error.message, "at most 3412 MiB each")) << error.message;
  EXPECT_TRUE(set_memory(state, job, "3412M", Limits()).ok());
  EXPECT_EQ(set_memory(state, job, "6G", Limits()).error().code, "usage");
  EXPECT_EQ(set_memory(state, job, std::to_string(1ull << 63), Limits()).error().code, "usage");
  EXPECT_EQ(set_memory(state, job, "", Limits()).error().code, "refused");  // a third of the device
  expect_sums(state);
}

}  // namespace berth::policy
