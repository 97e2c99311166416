#include "timing.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "modes.h"

namespace berth::load {

std::atomic<bool> stop_requested = false;

double rounded(double value) { return std::round(value * 1000) / 1000; }

void sleep_until(Clock::time_point when) {
  constexpr auto kLongest = std::chrono::milliseconds(20);  // how late a signal may be noticed
  while (!stop_requested) {
    auto left = when - Clock::now();
    if (left <= Clock::duration::zero()) return;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, kLongest));
  }
}

double percentile(std::vector<double>* values, double quantile) {
  if (values->empty()) return 0;
  std::sort(values->begin(), values->end());
  auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(values->size())));
  return (*values)[std::clamp<size_t>(rank, 1, values->size()) - 1];
}

// By hand rather than by std::exponential_distribution, whose numbers differ between standard libraries.
double Arrivals::next_gap() {
  double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
  return -std::log1p(-uniform) / rate_;
}

}  // namespace berth::load
