// Turns, shares and caps on a virtual device, against what is promised.
#include <cmath>

#include "policy/schedule_gate.h"
#include "policy/schedule_testing.h"

namespace berth::policy {
namespace {

using std::chrono::seconds;

constexpr double kOneWindow = 0.00101;  // of a second, and rounding

// Runs jobs of these weights side by side and expects their shares within one point and hardly any loss.
void expect_shares(const std::vector<uint32_t>& weights, const std::vector<Time>& kernels) {
  SimulatedDevice device;
  std::vector<JobId> jobs;
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    jobs.push_back(device.add(load(weights[i], kernels[i % kernels.size()])));
    sum += weights[i];
  }
  device.run(seconds(10));
  EXPECT_GE(ratio(device.total(), seconds(10)), 0.98);
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_NEAR(ratio(device.service(jobs[i]), device.total()), weights[i] / sum, 0.01) << "job " << i;
}

// The shares in all windows of `length`, as means and worst ones.
struct Windows {
  double least = 1e9, most = -1e9, mean = 0, deviation = 0;
};
Windows windows_of(const std::vector<double>& service, size_t length, size_t step) {
  std::vector<double> prefix(1, 0), values;
  for (double each : service) prefix.push_back(prefix.back() + each);
  for (size_t at = 0; at + length < prefix.size(); at += step)
    values.push_back((prefix[at + length] - prefix[at]) / (static_cast<double>(length) * 1e-3));
  Windows windows;
  for (double value : values) {
    windows.least = std::min(windows.least, value);
    windows.most = std::max(windows.most, value);
    windows.mean += value / static_cast<double>(values.size());
  }
  for (double value : values)
    windows.deviation += (value - windows.mean) * (value - windows.mean) / static_cast<double>(values.size());
  windows.deviation = std::sqrt(windows.deviation);
  return windows;
}

// Service of a job in each millisecond of a run.
std::vector<double> record(SimulatedDevice& device, JobId job, Time length) {
  std::vector<double> service;
  Time before = device.service(job);
  device.after_tick = [&] {
    service.push_back(in_seconds(device.service(job) - before));
    before = device.service(job);
  };
  device.run(length);
  device.after_tick = [] {};
  return service;
}

}  // namespace

TEST(Scheduler, WeightsDivideTheDeviceAndWinBackWhatSlicingLoses) {
  const std::vector<Time> usual{microseconds(100)}, mixed{microseconds(5), milliseconds(3), microseconds(400)};
  for (const auto& kernels : {usual, mixed}) {
    expect_shares({300, 100}, kernels);
    expect_shares({100, 100, 100, 100}, kernels);
    expect_shares({500, 300, 200}, kernels);
  }
}

TEST(Scheduler, B38ThirtyToSeventy) {
  expect_shares({30, 70}, {microseconds(2700)});
  expect_shares({30, 70}, {microseconds(2700), microseconds(10)});
}

TEST(Scheduler, LongKernelsDoNotWin) {
  SimulatedDevice device;
  JobId longs = device.add(load(100, milliseconds(20))), shorts = device.add(load(100, microseconds(5)));
  device.run(seconds(10));
  EXPECT_NEAR(ratio(device.service(longs), device.total()), 0.5, 0.02);
  EXPECT_NEAR(ratio(device.service(shorts), device.total()), 0.5, 0.02);
}

TEST(Scheduler, OneJobAloneIsNeverHeld) {
  SimulatedDevice device;
  JobId alone = device.add(load(1));
  device.after_tick = [&] { ASSERT_EQ(device.turns.contenders.at(alone).held, Held::no); };
  device.run(seconds(2));
  EXPECT_GE(ratio(device.service(alone), seconds(2)), 0.999);
}

TEST(Scheduler, B45SmallKernelsUnderACapOfTwentyPercent) {
  Load small = load(100, microseconds(10));
  small.share.max_share = 0.2;
  SimulatedDevice device;
  JobId job = device.add(small);
  std::vector<double> service = record(device, job, seconds(20));
  Windows second = windows_of(service, 1000, 1), tenth = windows_of(service, 100, 100);
  EXPECT_LE(second.most, 0.2 + kOneWindow);  // plus one window, in whatever second
  EXPECT_GE(second.least, 0.19);             // B39: no bang-bang
  EXPECT_NEAR(tenth.mean, 0.2, 0.005);
  EXPECT_LE(tenth.deviation, 0.02);
  EXPECT_EQ(device.turns.contenders.at(job).last_held, Held::max_share);
}

TEST(Scheduler, B42StrictAloneAndWorkConservingWithoutACap) {
  for (double share : {0.02, 0.1, 0.5, 0.9}) {
    Load capped = load(100);
    capped.share.max_share = share;
    SimulatedDevice device;
    JobId job = device.add(capped);
    Windows second = windows_of(record(device, job, seconds(10)), 1000, 1);
    EXPECT_LE(second.most, share + kOneWindow) << share;
    EXPECT_GE(second.least, share * 0.95 - 0.001) << share;

    JobId other = device.add(load(1));  // gets all the rest, though its weight is the least
    Time before = device.service(job);
    device.run(seconds(10));
    EXPECT_NEAR(ratio(device.service(other), seconds(10)), 1 - share, 0.03) << share;
    EXPECT_LE(ratio(device.service(job) - before, seconds(10)), share + kOneWindow) << share;
  }
}

TEST(Scheduler, ACapHoldsForLongKernelsUpToOneOfThem) {
  Load capped = load(100, milliseconds(20));
  capped.share.max_share = 0.3;
  SimulatedDevice device;
  JobId job = device.add(capped);
  Windows second = windows_of(record(device, job, seconds(20)), 1000, 1);
  EXPECT_LE(second.most, 0.3 + 0.020);
  EXPECT_NEAR(second.mean, 0.3, 0.02);
}

TEST(Scheduler, ACapAfterARestIsNoBurst) {
  Load capped = requests(milliseconds(300), milliseconds(2500));
  capped.share.max_share = 0.25;
  SimulatedDevice device;
  JobId job = device.add(capped);
  EXPECT_LE(windows_of(record(device, job, seconds(30)), 1000, 1).most, 0.25 + kOneWindow);
}

TEST(Scheduler, B40DevicesAreSeparate) {
  SimulatedDevice first, second;
  JobId a = first.add(load(300)), b = first.add(load(100)), c = second.add(load(100)), d = second.add(load(400));
  for (int i = 0; i < 1000; ++i) first.run(milliseconds(5)), second.run(milliseconds(5));
  EXPECT_NEAR(ratio(first.service(a), first.total()), 0.75, 0.01);
  EXPECT_NEAR(ratio(first.service(b), first.total()), 0.25, 0.01);
  EXPECT_NEAR(ratio(second.service(c), second.total()), 0.2, 0.01);
  EXPECT_NEAR(ratio(second.service(d), second.total()), 0.8, 0.01);
}

TEST(Scheduler, SharesAreEvenOverShortTimes) {
  SimulatedDevice device;
  JobId a = device.add(load(300));
  device.add(load(100));
  std::vector<double> service = record(device, a, seconds(10));
  Windows second = windows_of(service, 1000, 50), tenth = windows_of(service, 100, 100);
  EXPECT_NEAR(second.least, 0.75, 0.03);
  EXPECT_NEAR(second.most, 0.75, 0.03);
  EXPECT_LE(tenth.deviation, 0.12);
}

TEST(Scheduler, AShortRequestDoesNotWaitForATurnToEnd) {
  SimulatedDevice device;
  device.add(load(100));
  device.add(load(100));
  JobId service = device.add(requests(microseconds(800), milliseconds(7)));
  device.run(seconds(10));
  std::vector<Time> latencies = device.jobs.at(service).latencies;
  ASSERT_GT(latencies.size(), 500u);
  std::sort(latencies.begin(), latencies.end());
  EXPECT_LE(latencies[latencies.size() * 99 / 100], milliseconds(8));
  EXPECT_GE(ratio(device.total(), seconds(10)), 0.95);
}

TEST(Scheduler, AJobWithoutABacklogGetsItsWeight) {
  SimulatedDevice device;
  Load waits_for_each = load(300, milliseconds(10));  // one kernel at a time, and a short gap
  waits_for_each.depth = 1;
  JobId heavy = device.add(waits_for_each), other = device.add(load(100));
  device.run(seconds(10));
  EXPECT_NEAR(ratio(device.service(heavy), device.total()), 0.75, 0.08);
  EXPECT_GE(ratio(device.service(other), device.total()), 0.2);
}

TEST(Scheduler, RestEarnsNoCreditBeyondAQuantum) {
  SimulatedDevice device;
  Load late = load(100);
  late.from = seconds(3);
  JobId steady = device.add(load(100)), rested = device.add(late);
  device.run(seconds(3));
  Time before = device.service(steady);
  device.run(seconds(1));
  EXPECT_LE(device.service(rested), milliseconds(500) + device.settings.quantum + milliseconds(5));
  EXPECT_GE(device.service(steady) - before, milliseconds(500) - device.settings.quantum - milliseconds(5));
}

TEST(Scheduler, WhoIsHeldByAHigherLevelIsNotCharged) {
  SimulatedDevice device;
  Load busy = load(100), low = load(100);
  busy.share.priority = Priority::high;
  low.share.priority = Priority::low;
  low.share.max_share = 0.5;
  JobId high = device.add(busy), held = device.add(low);
  device.run(seconds(3));
  EXPECT_EQ(device.service(held), Time(0));
  EXPECT_LE(device.turns.contenders.at(held).charged, milliseconds(20));
  EXPECT_GE(device.turns.contenders.at(high).charged, milliseconds(2950));
  EXPECT_EQ(device.turns.contenders.at(held).held, Held::no);  // its cap is not used up
}

TEST(Scheduler, PausedJobsDrainAndTheOthersGetAll) {
  SimulatedDevice device;
  JobId a = device.add(load(100)), b = device.add(load(100));
  device.run(seconds(1));
  TimeShare paused = device.jobs.at(a).load.share;
  paused.paused = true;
  device.change(a, paused);
  device.run(milliseconds(5));
  Time drained = device.service(a), before = device.service(b);
  device.run(seconds(2));
  EXPECT_EQ(device.service(a), drained);
  EXPECT_EQ(device.turns.contenders.at(a).held, Held::paused);
  EXPECT_GE(ratio(device.service(b) - before, seconds(2)), 0.99);
  paused.paused = false;
  device.change(a, paused);
  device.run(seconds(2));
  EXPECT_NEAR(ratio(device.service(a) - drained, seconds(2)), 0.5, 0.03);  // and no more: a pause earns nothing
}

TEST(Scheduler, WeightsChangeLiveAndOldDebtsDoNotGrow) {
  SimulatedDevice device;
  JobId a = device.add(load(1)), b = device.add(load(10000));
  device.run(seconds(5));
  TimeShare share = device.jobs.at(a).load.share;
  share.weight = 10000;
  device.change(a, share);
  Time from_a = device.service(a), from_b = device.service(b);
  device.run(seconds(2));
  EXPECT_NEAR(ratio(device.service(a) - from_a, seconds(2)), 0.5, 0.03);
  EXPECT_NEAR(ratio(device.service(b) - from_b, seconds(2)), 0.5, 0.03);
}

TEST(Scheduler, TheLightestJobIsServedAllTheSame) {
  SimulatedDevice device;
  JobId light = device.add(load(1)), heavy = device.add(load(10000));
  device.run(seconds(45));
  EXPECT_GE(device.service(light), 4 * device.settings.least_turn);  // one each 10 s
  EXPECT_GE(ratio(device.service(heavy), device.total()), 0.998);
  EXPECT_LE(waiting_bound(device.turns, light, device.settings), seconds(11));
  EXPECT_EQ(waiting_bound(device.turns, heavy, device.settings), device.settings.cycle);
}

TEST(Scheduler, LowerLevelsTakeTurnsAmongThemselvesInWhatIsLeft) {
  SimulatedDevice device;
  JobId high = device.add(requests(milliseconds(5), milliseconds(5), Priority::high));
  Load low = load(100);
  low.share.priority = Priority::low;
  low.window = microseconds(200);
  JobId a = device.add(low);
  low.share.weight = 300;
  JobId b = device.add(low);
  device.run(seconds(10));
  EXPECT_GE(ratio(device.service(high), seconds(10)), 0.45);
  EXPECT_NEAR(ratio(device.service(b), device.service(a) + device.service(b)), 0.75, 0.02);
}

// Reports that are false gain next to nothing: the wall's time of a turn counts.
TEST(Scheduler, AJobThatReportsNothingGainsNothing) {
  for (double reports : {0.0, 0.3, 5.0}) {
    SimulatedDevice device;
    Load liar = load(100);
    liar.reports = reports;
    JobId false_one = device.add(liar), honest = device.add(load(100));
    device.run(seconds(10));
    EXPECT_GE(ratio(device.service(honest), device.total()), 0.47) << reports;
    EXPECT_LE(ratio(device.service(false_one), device.total()), 0.53) << reports;
  }
}

TEST(Scheduler, AJobThatDeniesItsBacklogAndItsServiceGetsNoMoreThanTheHardwareGives) {
  SimulatedDevice device;
  Load liar = load(100);
  liar.depth = 1;
  liar.reports = 0;
  device.add(liar);
  JobId honest = device.add(load(100));
  device.run(seconds(10));
  EXPECT_GE(ratio(device.service(honest), device.total()), 0.4);
}

TEST(Scheduler, TicksAreFastOnlyWhileThereIsSomethingToDecide) {
  SimulatedDevice device;
  device.add(load(100));
  JobId other = device.add(requests(seconds(1), seconds(100)));
  EXPECT_FALSE(next_tick(device.turns, device.now));  // nobody has worked yet
  device.run(milliseconds(500));
  EXPECT_EQ(next_tick(device.turns, device.now), kFastTick);
  device.run(seconds(3));
  EXPECT_TRUE(device.jobs.at(other).queue.empty());
  EXPECT_EQ(next_tick(device.turns, device.now), kSlowTick);
  device.jobs.begin()->second.load.to = Time(0);
  device.run(milliseconds(1010));
  EXPECT_FALSE(next_tick(device.turns, device.now));
}

TEST(Scheduler, NobodyIsChargedForTimeWithoutTicks) {
  DeviceTurns turns;
  set_contender(turns, 1, {});
  Sighting working;
  working.busy = true;
  working.outstanding = 4;
  working.streams = 1;
  tick(turns, {{1, working}}, std::chrono::hours(1), {});
  EXPECT_EQ(turns.contenders.at(1).charged, Time(0));
  tick(turns, {{1, working}}, std::chrono::hours(1) + milliseconds(20), {});
  EXPECT_EQ(turns.contenders.at(1).charged, milliseconds(20));
}

TEST(ServiceHistory, SumsAreThoseOfTheLastSecondAndMinute) {
  ServiceHistory history;
  Time now = seconds(100);
  for (int i = 0; i < 4000; ++i) add(history, now += milliseconds(1), microseconds(250));
  EXPECT_NEAR(second_ratio(history, now), 0.25, 0.001);
  EXPECT_NEAR(minute_ratio(history, now), 0.25, 0.01);
  EXPECT_NEAR(second_ratio(history, now + milliseconds(500)), 0.125, 0.001);
  EXPECT_EQ(second_ratio(history, now + seconds(2)), 0);
  EXPECT_NEAR(minute_ratio(history, now + seconds(50)), 1.0 / 54, 0.002);
  EXPECT_EQ(minute_ratio(history, now + seconds(70)), 0);
}

TEST(ScheduleGate, NobodyPaysForWhatIsNotNeeded) {
  const Time target = microseconds(200);
  DeviceTurns turns;
  auto gate = [&](JobId job, Time now = Time(0)) { return gate_of(turns, job, now, target); };
  set_contender(turns, 1, {});
  EXPECT_EQ(gate(1), Gate());
  set_contender(turns, 2, {Priority::low, 100, {}, false});  // all others are lower: seen, never held
  EXPECT_EQ(gate(1), (Gate{true, false, kWindowAmongEquals}));
  EXPECT_EQ(gate(2), (Gate{true, true, target}));
  set_contender(turns, 2, {});  // an equal that has never worked
  EXPECT_EQ(gate(1), (Gate{true, false, kWindowAmongEquals}));
  turns.contenders.at(1).last_active = turns.contenders.at(2).last_active = seconds(10);
  EXPECT_EQ(gate(1, seconds(14)), (Gate{true, true, kWindowAmongEquals}));
  EXPECT_EQ(gate(2, seconds(15)), (Gate{true, false, kWindowAmongEquals}));
  remove_contender(turns, 2);
  EXPECT_EQ(gate(1), Gate());
  set_contender(turns, 1, {Priority::high, 100, 0.5, false});
  EXPECT_EQ(gate(1), (Gate{true, true, kWindowAmongEquals}));
  set_contender(turns, 1, {Priority::high, 100, 1.0, false});
  EXPECT_EQ(gate(1), Gate());
  set_contender(turns, 1, {Priority::high, 100, {}, true});
  EXPECT_TRUE(gate(1).hold);
}

}  // namespace berth::policy
