// Random lives of jobs and clients: whatever happens, no job gets more than its quota, all together never more than the
// device, promises can be kept, and no byte is lost.
#include <random>

#include "policy/testing.h"

namespace berth::policy {
namespace {

class RandomLife {
 public:
  explicit RandomLife(unsigned seed) : random_(seed) {
    for (Device& device : state_.devices) device.unmanaged = below(2 * kG);
  }

  void step() {
    now_ += std::chrono::milliseconds(below(300));
    switch (below(12)) {
      case 0:
        return add_job();
      case 1:
        return end_any_job();
      case 2:
        return add_any_client();
      case 3:
        return kill_any_client();
      case 4:
        return read_nvml();
      case 5:
        return change_quota();
      case 6:
        return report_holdings();
      case 7:
      case 8:
        return release_something();
      default:
        return reserve_something();
    }
  }

  void check() const {
    expect_sums(state_);
    for (DeviceIndex d = 0; d < state_.devices.size(); ++d) {
      const Device& device = state_.devices[d];
      // With an unchanging unmanaged part, promises never exceed the device; neither does what is held.
      uint64_t promised_bytes = 0;
      for (const auto& [id, job] : state_.jobs) promised_bytes += promised(job, d);
      ASSERT_LE(promised_bytes + device.unmanaged, device.total);
      for (const auto& [id, job] : state_.jobs) {
        if (job.state != JobState::running || !job.devices[d].quota) continue;
        ASSERT_LE(available(state_, job, d), less(*job.devices[d].quota, job.devices[d].used));
        // A promise is one: what is left of the quota can be had.
        ASSERT_EQ(available(state_, job, d), less(*job.devices[d].quota, job.devices[d].used));
      }
    }
  }

 private:
  uint64_t below(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(random_); }
  uint64_t some_bytes() { return below(10) == 0 ? ~0ull - below(kG) : below(3 * kG); }

  template <class Map>
  typename Map::key_type any(const Map& map) {
    return map.empty() ? 0 : std::next(map.begin(), static_cast<ptrdiff_t>(below(map.size())))->first;
  }
  ClientId living_client() {
    ClientId id = any(state_.clients);
    return id && state_.clients.at(id).state != ClientState::leaving ? id : 0;
  }
  DeviceIndex any_device() { return static_cast<DeviceIndex>(below(state_.devices.size())); }
  Kind any_kind() { return static_cast<Kind>(below(kKinds)); }

  void add_job() {
    std::string memory = below(3) == 0 ? "" : std::to_string(below(7 * kG) + 1);
    policy::admit(state_, memory, below(2) == 0);
  }
  void end_any_job() {
    JobId id = any(state_.jobs);
    if (!id || state_.jobs.at(id).state == JobState::ended) return;
    std::vector<ClientId> members;
    for (const auto& [number, client] : state_.clients)
      if (client.job == id) members.push_back(number);
    for (ClientId client : members) client_died(state_, client, now_);
    end_job(state_, id);
    admit_waiting(state_);
  }
  void add_any_client() {
    JobId id = any(state_.jobs);
    if (id && state_.jobs.at(id).state == JobState::running) add_client(state_, id, {++next_pid_, 1}, false, now_);
  }
  void kill_any_client() {
    if (ClientId id = any(state_.clients)) client_died(state_, id, now_);
  }
  void reserve_something() {
    ClientId id = living_client();
    if (!id) return;
    DeviceIndex device = any_device();
    Ask ask{any_kind(), some_bytes(), static_cast<Force>(below(10) < 8 ? 0 : below(3))};
    if (ask.kind == Kind::overhead && below(2) == 0) ask.bytes = 0;
    const JobDevice before = state_.jobs.at(state_.clients.at(id).job).devices[device];
    Answer answer = policy::reserve(state_, id, device, ask, now_);
    const JobDevice& after = state_.jobs.at(state_.clients.at(id).job).devices[device];
    if (ask.kind == Kind::imported) {
      ASSERT_EQ(after.used, before.used);
      return;
    }
    ASSERT_EQ(after.used, before.used + answer.bytes);
    if (answer.verdict == Verdict::granted && ask.force == Force::none && before.quota) {
      ASSERT_LE(after.used, *before.quota);
    }
  }
  void release_something() {
    ClientId id = living_client();
    if (!id) return;
    DeviceIndex device = any_device();
    const JobDevice before = state_.jobs.at(state_.clients.at(id).job).devices[device];
    Kind kind = any_kind();
    uint64_t released = release(state_, id, device, kind, some_bytes(), now_);
    const JobDevice& after = state_.jobs.at(state_.clients.at(id).job).devices[device];
    ASSERT_EQ(after.used, kind == Kind::imported ? before.used : before.used - released);
  }
  void report_holdings() {
    ClientId id = living_client();
    if (!id) return;
    begin_holdings(state_, id);
    for (int i = 0; i < 3; ++i) add_holding(state_, id, any_device(), any_kind(), some_bytes(), now_);
  }
  void change_quota() {
    JobId id = any(state_.jobs);
    if (id && state_.jobs.at(id).state == JobState::running)
      policy::set_memory(state_, id, std::to_string(below(8 * kG)), Limits()).ok();
  }
  // NVML agrees with the accounts: clients hold what they were granted, the dead sometimes still do.
  void read_nvml() {
    begin_reading(state_);
    for (DeviceIndex d = 0; d < state_.devices.size(); ++d) {
      Reading reading{now_, state_.devices[d].unmanaged, true, {}};
      for (const auto& [id, client] : state_.clients) {
        if (client.state == ClientState::leaving && below(2) == 0) continue;
        reading.processes.push_back({client.process.pid, held(client.holdings[d])});
        reading.used += held(client.holdings[d]);
      }
      uint64_t unmanaged = state_.devices[d].unmanaged;
      apply_reading(state_, d, reading, now_);
      ASSERT_LE(state_.devices[d].unmanaged, unmanaged);
      state_.devices[d].unmanaged = unmanaged;
    }
    admit_waiting(state_);
  }

  std::mt19937 random_;
  State state_ = make_state(2);
  Time now_{0};
  pid_t next_pid_ = 100;
};

}  // namespace

TEST(Property, RandomLivesKeepEveryPromise) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    RandomLife life(seed);
    for (int i = 0; i < 1500; ++i) {
      life.step();
      life.check();
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace berth::policy
