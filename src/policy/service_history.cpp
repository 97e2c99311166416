#include "policy/service_history.h"

#include <algorithm>
#include <utility>

namespace berth::policy {
namespace {

constexpr Time kStep = std::chrono::milliseconds(1), kSecond = std::chrono::seconds(1);

template <size_t N>
void forget(std::array<Time, N>& ring, Time& sum, int64_t& place, int64_t target) {
  if (target - place >= static_cast<int64_t>(N)) {
    ring.fill(Time(0));
    sum = Time(0);
    place = target;
  }
  while (place < target) {
    Time& oldest = ring[static_cast<size_t>(++place) % N];
    sum -= std::exchange(oldest, Time(0));
  }
}

// A correction is taken from where it was added, or else the sum would be too small once that is forgotten.
template <size_t N>
void put(std::array<Time, N>& ring, int64_t place, Time service) {
  Time& last = ring[static_cast<size_t>(place) % N];
  last += service;
  for (size_t back = 0; back + 1 < N && ring[static_cast<size_t>(place - static_cast<int64_t>(back)) % N] < Time(0);
       ++back)
    ring[static_cast<size_t>(place - static_cast<int64_t>(back) - 1) % N] +=
        std::exchange(ring[static_cast<size_t>(place - static_cast<int64_t>(back)) % N], Time(0));
}

double ratio(Time service, Time kept, Time since_began) {
  Time span = std::clamp(since_began, kStep, kept);
  return std::clamp(std::chrono::duration<double>(service) / std::chrono::duration<double>(span), 0.0, 1.0);
}

}  // namespace

void advance(ServiceHistory& history, Time now) {
  if (history.began < Time(0)) {
    history.began = now;
    history.step = now / kStep;
    history.second = now / kSecond;
  }
  forget(history.steps, history.in_second, history.step, now / kStep);
  forget(history.seconds, history.in_minute, history.second, now / kSecond);
}

void add(ServiceHistory& history, Time now, Time service) {
  advance(history, now);
  put(history.steps, history.step, service);
  put(history.seconds, history.second, service);
  history.in_second += service;
  history.in_minute += service;
}

double second_ratio(ServiceHistory& history, Time now) {
  advance(history, now);
  return ratio(history.in_second, kSecond, now - history.began);
}

double minute_ratio(ServiceHistory& history, Time now) {
  advance(history, now);
  return ratio(history.in_minute, 60 * kSecond, now - history.began);
}

}  // namespace berth::policy
