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
        // A promise is one: what is left of the quota can be had.
        uint64_t all = job.virtual_devices.empty() ? less(*job.devices[d].quota, job.devices[d].used) : 0;
        for (uint32_t v : virtual_devices_on(job, d)) {
          const VirtualDevice& part = job.virtual_devices[v];
          ASSERT_EQ(available(state_, job, Place(job, v)), less(part.quota, part.used));
          all += less(part.quota, part.used);
        }
        ASSERT_EQ(available(state_, job, d), all);
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
  // Programs of a job with virtual devices name one of these; NVML's corrections name the device.
  Place any_place(const Client& client) {
    const Job& job = state_.jobs.at(client.job);
    if (job.virtual_devices.empty()) return any_device();
    return {job, static_cast<uint32_t>(below(job.virtual_devices.size()))};
  }
  Kind any_kind() { return static_cast<Kind>(below(kKinds)); }

  void add_job() {
    std::string memory = below(3) == 0 ? "" : std::to_string(below(7 * kG) + 1);
    if (below(3) > 0)
      policy::admit(state_, memory, below(2) == 0);
    else
      admit_gpus(state_, static_cast<int64_t>(below(6)) + 1, memory, below(2) == 0);
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
    const Place place = any_place(state_.clients.at(id));
    Ask ask{any_kind(), some_bytes(), static_cast<Force>(below(10) < 8 ? 0 : below(3))};
    if (ask.kind == Kind::overhead && below(2) == 0) ask.bytes = 0;
    const Job& job = state_.jobs.at(state_.clients.at(id).job);
    const Use before = use_of(job, place);
    Answer answer = policy::reserve(state_, id, place, ask, now_);
    const Use after = use_of(job, place);
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
    const Place place = any_place(state_.clients.at(id));
    const Job& job = state_.jobs.at(state_.clients.at(id).job);
    const Use before = use_of(job, place);
    Kind kind = any_kind();
    uint64_t released = release(state_, id, place, kind, some_bytes(), now_);
    const Use after = use_of(job, place);
    ASSERT_EQ(after.used, kind == Kind::imported ? before.used : before.used - released);
  }
  void report_holdings() {
    ClientId id = living_client();
    if (!id) return;
    begin_holdings(state_, id);
    for (int i = 0; i < 3; ++i)
      add_holding(state_, id, any_place(state_.clients.at(id)), any_kind(), some_bytes(), now_);
  }
  void change_quota() {
    JobId id = any(state_.jobs);
    if (id && state_.jobs.at(id).state == JobState::running)
      policy::set_memory(state_, id, std::to_string(below(8 * kG)), Limits()).ok();
  }
  // NVML agrees with the accounts, or is a little below them: clients hold what they were granted, the dead sometimes
  // still do.
  void read_nvml() {
    now_ += below(2) * kQuiet;
    begin_reading(state_);
    for (DeviceIndex d = 0; d < state_.devices.size(); ++d) {
      Reading reading{now_, state_.devices[d].unmanaged, true, {}};
      for (const auto& [id, client] : state_.clients) {
        if (client.state == ClientState::leaving && below(2) == 0) continue;
        uint64_t overhead = client.holdings[d].bytes[static_cast<size_t>(Kind::overhead)];
        uint64_t bytes = held(client.holdings[d]) - (below(4) == 0 ? overhead / 3 : 0);
        reading.processes.push_back({client.process.pid, bytes});
        reading.used += bytes;
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
