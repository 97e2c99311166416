// A device in virtual time for the tests of the scheduler: jobs queue batches of kernels, the hardware slices between
// those whose work may run, what has begun runs to its end; a tick of the policy each millisecond.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>

#include "policy/schedule_charge.h"

namespace berth::policy {

using std::chrono::microseconds;
using std::chrono::milliseconds;

inline constexpr Time kSlice = milliseconds(2);
inline constexpr double kSlicingSpeed = 0.92;  // of what the device does while one program has it alone
inline constexpr Time kForEver = std::chrono::hours(1000);

struct Load {
  TimeShare share;
  Time kernel = microseconds(100), window = milliseconds(1);  // kernels are gathered up to a window
  size_t depth = 4;                                           // batches that the program keeps in the queue
  Time request{0}, think{0};  // with these: so much work at once, and a pause after it is done
  Time from{0}, to = kForEver;
  double reports = 1;  // of its service: a client that lies, or has learned badly

  Time batch() const { return std::max(kernel, window - window % kernel); }
};

inline Load load(uint32_t weight, Time kernel = microseconds(100)) {
  Load made;
  made.share.weight = weight;
  made.kernel = kernel;
  return made;
}
inline Load requests(Time request, Time think, Priority priority = Priority::normal) {
  Load made;
  made.share.priority = priority;
  made.request = request;
  made.think = think;
  return made;
}

class SimulatedDevice {
 public:
  struct Job {
    Load load;
    std::deque<Time> queue;  // what is left of each batch
    bool begun = false;      // the first of them
    Time wakes{0};           // when the next request comes
    Time request_began{0};
    std::vector<Time> latencies;
    Sighting seen;    // since the last tick
    Time service{0};  // truly received
  };

  DeviceTurns turns;
  TurnSettings settings;
  Time now{std::chrono::seconds(1000)};
  Time tick_length = kFastTick;
  std::map<JobId, Job> jobs;
  size_t events = 0;
  std::function<void()> after_tick = [] {};

  JobId add(const Load& load) {
    JobId id = ++last_;
    Job& job = jobs[id];
    job.load = load;
    job.wakes = now + load.from;
    set_contender(turns, id, load.share);
    return id;
  }
  void remove(JobId id) {
    gone_ += jobs.at(id).service;
    jobs.erase(id);
    remove_contender(turns, id);
    tick_now();  // as the daemon does when a client has gone
  }
  void change(JobId id, const TimeShare& share) {
    jobs.at(id).load.share = share;
    set_contender(turns, id, share);
  }
  void run(Time length) {
    for (Time end = now + length; now < end;) {
      Time next = std::min(end, now + tick_length);
      while (now < next) advance_to(next);
      tick_now();
    }
  }
  Time service(JobId id) const { return jobs.at(id).service; }
  Time total() const {
    Time sum = gone_;
    for (const auto& [id, job] : jobs) sum += job.service;
    return sum;
  }
  bool idle() const { return runnable().empty(); }

 private:
  void tick_now() {
    std::map<JobId, Sighting> sightings;
    for (auto& [id, job] : jobs) {
      job.seen.outstanding = static_cast<uint32_t>(job.queue.size());
      job.seen.busy = !job.queue.empty();
      job.seen.batch = job.load.batch();
      job.seen.streams = job.queue.empty() ? 0 : 1;
      sightings[id] = std::exchange(job.seen, Sighting());
    }
    tick(turns, sightings, now, settings);
    if (now > checked_) after_tick();
    checked_ = now;
  }

  void push(Job& job, Time length) {
    job.queue.push_back(length);
    ++job.seen.submitted;
    ++events;
  }
  // Programs submit what they want to.
  Time submit() {
    Time next = kForEver;
    for (auto& [id, job] : jobs) {
      const Load& load = job.load;
      if (now < job.wakes) {
        next = std::min(next, job.wakes);
        continue;
      }
      if (now >= started_ + load.to) continue;
      if (load.request == Time(0)) {
        while (job.queue.size() < load.depth) push(job, load.batch());
      } else if (job.queue.empty()) {
        job.request_began = now;
        for (Time left = load.request; left > Time(0); left -= load.batch()) push(job, std::min(left, load.batch()));
      }
    }
    return next;
  }

  std::vector<JobId> runnable() const {
    size_t level = 0;
    for (const auto& [id, job] : jobs)
      if (!job.queue.empty() && turns.contenders.at(id).held == Held::no)
        level = std::max(level, static_cast<size_t>(job.load.share.priority));
    std::vector<JobId> found;
    for (const auto& [id, job] : jobs) {
      bool may = turns.contenders.at(id).held == Held::no && static_cast<size_t>(job.load.share.priority) >= level;
      if (!job.queue.empty() && (job.begun || may)) found.push_back(id);
    }
    return found;
  }

  void advance_to(Time next) {
    next = std::min(next, submit());
    std::vector<JobId> able = runnable();
    if (able.empty()) {
      now = next;
      return;
    }
    auto place = std::find(able.begin(), able.end(), current_);
    if (place == able.end() || slice_left_ <= Time(0)) {
      auto after = std::upper_bound(able.begin(), able.end(), current_);
      current_ = after == able.end() ? able.front() : *after;
      slice_left_ = kSlice;
    }
    Job& job = jobs.at(current_);
    job.begun = true;
    const double speed = able.size() > 1 ? kSlicingSpeed : 1;
    Time step = std::min(next - now, scaled(job.queue.front(), 1 / speed) + Time(1));
    if (able.size() > 1) step = std::min(step, slice_left_);
    Time progress = std::min(job.queue.front(), scaled(step, speed));
    now += step;
    slice_left_ -= step;
    job.queue.front() -= progress;
    job.service += progress;
    unreported_[current_] += progress;
    if (job.queue.front() <= Time(0)) complete(job);
  }

  void complete(Job& job) {
    job.queue.pop_front();
    job.begun = false;
    ++job.seen.completed;
    ++events;
    job.seen.service += scaled(std::exchange(unreported_[current_], Time(0)), job.load.reports);
    if (job.load.request > Time(0) && job.queue.empty()) {
      job.latencies.push_back(now - job.request_began);
      job.wakes = now + job.load.think;
    }
  }

  JobId last_ = 0, current_ = 0;
  Time slice_left_{0}, started_{now}, gone_{0}, checked_{0};
  std::map<JobId, Time> unreported_;
};

inline double ratio(Time part, Time whole) { return in_seconds(part) / in_seconds(whole); }

}  // namespace berth::policy
