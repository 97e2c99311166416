// Random jobs against ideal weighted processor sharing: more than 10^5 events in all, fixed seeds.
#include <cmath>
#include <random>

#include "policy/schedule_testing.h"

namespace berth::policy {
namespace {

using std::chrono::seconds;

struct Ideal {
  double share = 0;  // seconds by ideal weighted sharing of what the device really did
  Time arrived{0}, waits_since{0};
};

class RandomDevice {
 public:
  explicit RandomDevice(unsigned seed) : random_(seed) {
    device_.after_tick = [this] { check(); };
  }

  void run(Time length) {
    for (Time end = device_.now + length; device_.now < end && !::testing::Test::HasFatalFailure();) {
      if (jobs_.size() < 2 || (jobs_.size() < 7 && below(2) == 0))
        arrive();
      else
        leave();
      if (below(4) == 0) reweigh();
      device_.run(milliseconds(300 + below(2000)));
    }
  }
  size_t events() const { return device_.events; }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  uint32_t some_weight() {
    return static_cast<uint32_t>(std::lround(std::pow(10000.0, static_cast<double>(below(1001)) / 1000)));
  }
  // 5 us to 20 ms, all magnitudes alike.
  Time some_kernel() {
    return Time(static_cast<int64_t>(5000 * std::pow(4000.0, static_cast<double>(below(1001)) / 1000)));
  }

  void arrive() {
    JobId job = device_.add(load(some_weight(), some_kernel()));
    jobs_[job].arrived = jobs_[job].waits_since = device_.now;
  }
  void leave() {
    auto it = std::next(jobs_.begin(), static_cast<ptrdiff_t>(below(static_cast<int64_t>(jobs_.size()))));
    device_.remove(it->first);
    jobs_.erase(it);
  }
  void reweigh() {
    auto it = std::next(jobs_.begin(), static_cast<ptrdiff_t>(below(static_cast<int64_t>(jobs_.size()))));
    TimeShare share = device_.jobs.at(it->first).load.share;
    share.weight = some_weight();
    device_.change(it->first, share);
  }

  void check() {
    if (::testing::Test::HasFatalFailure()) return;
    double total = in_seconds(device_.total()), done = total - last_total_, weights = 0;
    last_total_ = total;
    for (const auto& [id, ideal] : jobs_) weights += device_.jobs.at(id).load.share.weight;
    // All have a backlog, so the device is never idle, and never sliced for long.
    ASSERT_GE(done, 0.9e-3) << "not work-conserving";
    Time kernels{0};
    for (const auto& [id, ideal] : jobs_) kernels += device_.jobs.at(id).load.batch();
    for (auto& [id, ideal] : jobs_) {
      const Contender& contender = device_.turns.contenders.at(id);
      ideal.share += done * contender.share.weight / weights;
      check_share(id, ideal, contender, kernels);
      check_wait(id, ideal, contender, kernels);
    }
  }

  // One cycle, the work in flight at the ends of turns, and a hundredth of the time for what ticks do not see.
  void check_share(JobId id, const Ideal& ideal, const Contender& contender, Time kernels) {
    double error = in_seconds(device_.service(id)) - ideal.share;
    worst_ = std::max(worst_, std::fabs(error) - allowed(ideal, kernels));
    ASSERT_LE(std::fabs(error), allowed(ideal, kernels))
        << "job " << id << " of weight " << contender.share.weight << " among " << jobs_.size() << ", after "
        << in_seconds(device_.now - ideal.arrived) << " s";
  }
  double allowed(const Ideal& ideal, Time kernels) const {
    return in_seconds(device_.settings.cycle + 2 * kernels) + 0.01 * in_seconds(device_.now - ideal.arrived);
  }

  void check_wait(JobId id, Ideal& ideal, const Contender& contender, Time kernels) {
    if (contender.held != Held::turn) {
      ideal.waits_since = device_.now;
      return;
    }
    Time slack = 3 * kernels + device_.settings.cycle;
    ASSERT_LE(device_.now - ideal.waits_since, device_.settings.starvation + slack) << "job " << id;
  }

  std::mt19937 random_;
  SimulatedDevice device_;
  std::map<JobId, Ideal> jobs_;
  double last_total_ = 0, worst_ = -1e9;
};

}  // namespace

TEST(SchedulerProperty, RandomJobsGetWhatIdealSharingWouldGive) {
  size_t events = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    RandomDevice device(seed);
    device.run(seconds(30));
    events += device.events();
    if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GE(events, 100000u);
}

}  // namespace berth::policy
