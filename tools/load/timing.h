// Clock, waiting that a signal ends, and the arithmetic of open-loop load.
#pragma once
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace berth::load {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}
inline double in_seconds(Clock::duration value) { return std::chrono::duration<double>(value).count(); }

// To three decimals, for reports.
double rounded(double value);

// Sleeps until `when`, or until a signal asked to stop.
void sleep_until(Clock::time_point when);

// The smallest of `values` that at least the part `quantile` of them does not exceed; 0 of none. Sorts `values`.
double percentile(std::vector<double>* values, double quantile);

// Poisson arrivals: gaps in seconds between requests, the same for the same seed.
class Arrivals {
 public:
  Arrivals(double rate, uint32_t seed) : random_(seed), rate_(rate) {}
  double next_gap();

 private:
  std::mt19937_64 random_;
  double rate_;
};

}  // namespace berth::load
