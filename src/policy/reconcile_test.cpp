#include "policy/testing.h"

namespace berth::policy {
namespace {

using std::chrono::seconds;

struct Scene {
  State state = make_state();
  JobId job = admitted(admit(state, "8G"));
  ClientId client = attach(state, job, 10);

  std::vector<Drift> read(uint64_t nvml, Time now, uint64_t others = 0) {
    begin_reading(state);
    return apply_reading(state, 0, {now, nvml + others, true, {{10, nvml}}}, now);
  }
  uint64_t overhead() const { return state.clients.at(client).holdings[0].bytes[static_cast<size_t>(Kind::overhead)]; }
};

}  // namespace

TEST(Reconcile, OverheadIsWhatNvmlListsBeyondTheCount) {
  Scene scene;
  reserve(scene.state, scene.client, kG);
  EXPECT_TRUE(scene.read(kG + 600 * kM, seconds(5), 2 * kG).empty());  // the first overhead is no drift
  EXPECT_EQ(scene.overhead(), 600 * kM);
  EXPECT_EQ(scene.state.devices[0].unmanaged, 2 * kG);
  expect_sums(scene.state);
}

TEST(Reconcile, AGrantThatTheDriverHasNotUsedYetDoesNotHideOverhead) {
  Scene scene;
  scene.read(600 * kM, seconds(5));
  EXPECT_EQ(scene.overhead(), 600 * kM);
  reserve(scene.state, scene.client, 4 * kG, Kind::linear, Force::none, seconds(6));
  scene.read(600 * kM, Time(seconds(6)) + std::chrono::milliseconds(10));
  EXPECT_EQ(scene.overhead(), 600 * kM);
  // What was released while NVML was read may still be in its figure.
  begin_reading(scene.state);
  release(scene.state, scene.client, 0, Kind::linear, 4 * kG, seconds(8));
  apply_reading(scene.state, 0, {seconds(8), 0, true, {{10, 4 * kG + 600 * kM}}}, seconds(8));
  EXPECT_EQ(scene.overhead(), 600 * kM);
}

TEST(Reconcile, OverheadSinksInAQuietAccount) {
  Scene scene;
  reserve(scene.state, scene.client, 0, Kind::overhead, Force::none, seconds(1));
  scene.read(300 * kM, Time(seconds(1)) + std::chrono::milliseconds(100));
  EXPECT_EQ(scene.overhead(), kDefaultContextCost);
  scene.read(300 * kM, seconds(3));
  EXPECT_EQ(scene.overhead(), 300 * kM);
}

TEST(Reconcile, TheCostOfAContextIsLearned) {
  Scene scene;
  reserve(scene.state, scene.client, 0, Kind::overhead);
  scene.read(400 * kM, seconds(5));
  EXPECT_EQ(scene.state.devices[0].context_cost, 400 * kM);
  scene.read(900 * kM, seconds(10));  // modules: no reason to think that contexts cost more
  EXPECT_EQ(scene.state.devices[0].context_cost, 400 * kM);
  scene.read(350 * kM, seconds(15));
  EXPECT_EQ(scene.state.devices[0].context_cost, 350 * kM);
}

// After a restart of the daemon a client's account is empty until it has reported.
TEST(Reconcile, TheCostOfAContextIsNotLearnedFromOneThatHasNotReported) {
  Scene scene;
  scene.state.clients.at(scene.client).state = ClientState::silent;
  scene.read(3 * kG, seconds(5));
  EXPECT_FALSE(scene.state.devices[0].context_cost_learned);
  set_attached(scene.state, scene.client, seconds(6));
  scene.read(3 * kG, seconds(6));
  EXPECT_FALSE(scene.state.devices[0].context_cost_learned);
}

TEST(Reconcile, ManagedMemoryMayOrMayNotBeResident) {
  Scene scene;
  reserve(scene.state, scene.client, 0, Kind::overhead);
  reserve(scene.state, scene.client, 4 * kG, Kind::managed);
  scene.read(kDefaultContextCost, seconds(5));
  EXPECT_EQ(scene.overhead(), kDefaultContextCost);
  scene.read(kDefaultContextCost + 4 * kG, seconds(10));
  EXPECT_EQ(scene.overhead(), kDefaultContextCost);
  scene.read(kDefaultContextCost + 5 * kG, seconds(15));
  EXPECT_EQ(scene.overhead(), kDefaultContextCost + kG);
}

TEST(Reconcile, ImportsAreNoOverhead) {
  Scene scene;
  reserve(scene.state, scene.client, 2 * kG, Kind::imported, Force::taken);
  scene.read(2 * kG + 500 * kM, seconds(5));
  EXPECT_EQ(scene.overhead(), 500 * kM);
}

TEST(Reconcile, DriftIsToldOnceAndNotWhenItWasAnnounced) {
  Scene scene;
  reserve(scene.state, scene.client, kG);
  scene.read(kG + 500 * kM, seconds(5));
  EXPECT_TRUE(scene.read(kG + 560 * kM, seconds(10)).empty());  // below 64 MiB
  auto drift = scene.read(kG + 700 * kM, seconds(15));
  ASSERT_EQ(drift.size(), 1u);
  EXPECT_EQ(drift[0].nvml_bytes, kG + 700 * kM);
  EXPECT_EQ(drift[0].account_bytes, kG + 560 * kM);
  EXPECT_TRUE(scene.read(kG + 700 * kM, seconds(20)).empty());
  scene.state.clients.at(scene.client).holdings[0].refreshed = true;
  EXPECT_TRUE(scene.read(kG + 900 * kM, seconds(25)).empty());
  // Less than was counted, for long: told once.
  EXPECT_EQ(scene.read(512 * kM, seconds(30)).size(), 1u);
  EXPECT_TRUE(scene.read(512 * kM, seconds(35)).empty());
}

TEST(Reconcile, LeavingBytesAreFreeWhenNvmlNoLongerListsTheProcess) {
  Scene scene;
  reserve(scene.state, scene.client, kG);
  client_died(scene.state, scene.client, seconds(5));
  scene.read(kG, seconds(6));
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].leaving, kG);
  EXPECT_EQ(scene.state.devices[0].unmanaged, 0u);
  begin_reading(scene.state);
  apply_reading(scene.state, 0, {seconds(4), 0, true, {}}, seconds(6));  // began before its death: says nothing
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].leaving, kG);
  apply_reading(scene.state, 0, {seconds(7), 0, true, {}}, seconds(7));
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].leaving, 0u);
  EXPECT_TRUE(scene.state.clients.empty());
  expect_sums(scene.state);
}

TEST(Reconcile, WhereNvmlListsNobodyTheDeadAreGoneAfterAWhile) {
  Scene scene;
  reserve(scene.state, scene.client, kG);
  client_died(scene.state, scene.client, seconds(5));
  apply_reading(scene.state, 0, {Time(seconds(5)) + std::chrono::milliseconds(10), kG, false, {}}, seconds(5));
  EXPECT_EQ(anything_leaving(scene.state), true);
  apply_reading(scene.state, 0, {seconds(7), 0, false, {}}, seconds(7));
  EXPECT_EQ(anything_leaving(scene.state), false);
}

TEST(Reconcile, ASilentClientThatNvmlNoLongerListsHoldsNothing) {  // exec keeps pid and start time
  Scene scene;
  reserve(scene.state, scene.client, kG);
  set_silent(scene.state, scene.client, seconds(1));
  apply_reading(scene.state, 0, {seconds(2), 0, true, {}}, seconds(2));
  EXPECT_EQ(scene.state.devices[0].used, kG);  // it was never listed: NVML may not see it
  scene.read(kG, seconds(3));
  apply_reading(scene.state, 0, {seconds(4), 0, true, {}}, seconds(4));
  EXPECT_EQ(scene.state.devices[0].used, 0u);
}

TEST(Reconcile, APidThatIsGivenAnewIsTheLivingOnes) {
  Scene scene;
  reserve(scene.state, scene.client, kG);
  client_died(scene.state, scene.client, seconds(1));
  ClientId next = add_client(scene.state, scene.job, {10, 2}, false, seconds(2)).id;
  scene.read(500 * kM, seconds(3));
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].leaving, 0u);
  EXPECT_EQ(held(scene.state.clients.at(next).holdings[0]), 500 * kM);
}

TEST(Reconcile, EscapedProcessesAreChargedWhatNvmlSays) {  // B14
  Scene scene;
  Client& escaped = add_client(scene.state, scene.job, {20, 1}, false, Time(0));
  escaped.state = ClientState::escaped;
  begin_reading(scene.state);
  apply_reading(scene.state, 0, {seconds(1), 3 * kG, true, {{20, 3 * kG}}}, seconds(1));
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].used, 3 * kG);
  EXPECT_EQ(available(scene.state, scene.state.jobs.at(scene.job), 0), 5 * kG);
  EXPECT_EQ(scene.state.devices[0].unmanaged, 0u);
  apply_reading(scene.state, 0, {seconds(2), 0, true, {}}, seconds(2));
  EXPECT_EQ(scene.state.jobs.at(scene.job).devices[0].used, 0u);
}

}  // namespace berth::policy
