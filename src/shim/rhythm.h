// How the work of a client of higher priority comes and goes, as a client that waits for it sees it; and what follows: must it
// be waited for at this moment? Plain functions over plain state, no clock; the helper looks every 20 us while it has work.
//
// Pauses. A service with requests in its queue pauses between them for as long as its own code takes; a batch let go in such a
// pause would delay the next request and gain little. So a pause counts as one when it has lasted so long that the client is
// unlikely to be back at once, judged by its pauses so far.
//
// The latency budget X (`berth run --max-slowdown`). Work may keep the higher client company until a busy period is T old.
// While it lasts the hardware gives both the same part, so the higher one gets on by at least T / 2 and loses at most T / 2:
// all requests of a busy period are late by no more than that, and one of length R is slower by at most (R + T / 2) / R.
// With R the usual length, the median of the busy periods (most of which are a single request up to a load of about 0.7), the
// budget holds for the usual request: T = 2 (X - 1) R, less the window that is in flight when the company ends. With a high
// percentile for R the slowest hundredth alone would be within its budget, and a service at half load no longer kept up
// (measured). Periods with company are longer by T / 2, which T then contains: for X < 2 that converges, to R (X - 1) more.
// No company for X = 1, and until kLeastPeriods have been seen.
#pragma once
#include <cstdint>

namespace berth::shim {

class Rhythm {
 public:
  static constexpr uint32_t kLeastPeriods = 50;

  // T as of now, for comes_first. `excess`: (X - 1) in thousandths. Times in ns.
  uint64_t company_ns(uint32_t excess, uint64_t window) const;

  // `now` never goes back.
  bool comes_first(bool busy, uint64_t company, uint64_t now);

 private:
  static constexpr uint64_t kStepNs = 20'000;
  static constexpr uint32_t kSteps = 16, kSoon = 3;      // "at once" is three steps
  static constexpr uint64_t kUnseenNs = 2'000'000;       // since the last look: what goes on may be something else by now
  static constexpr uint32_t kLengths = 80, kKept = 512;  // four classes an octave, from 8 us

  void note_pause(uint64_t ns);
  void note_period(uint64_t ns);

  uint64_t seen_, busy_since_, idle_since_;  // 0: it was not so at the last look
  uint64_t patience_ns_, usual_ns_;
  uint16_t pauses_[kSteps + 1];  // by their length in steps; the last one has all longer ones
  uint16_t lengths_[kLengths];   // of busy periods
  uint16_t periods_;             // in lengths_
};

}  // namespace berth::shim
