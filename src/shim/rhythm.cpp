#include "shim/rhythm.h"

namespace berth::shim {
namespace {

constexpr uint64_t kLeastNs = 8192, kMostCompanyNs = 1'000'000'000;

uint32_t class_of(uint64_t ns) {
  uint64_t quarters = ns * 4 / kLeastNs;  // 4: the first class
  if (quarters < 4) return 0;
  auto octave = 61u - static_cast<uint32_t>(__builtin_clzll(quarters));
  return octave * 4 + static_cast<uint32_t>(quarters >> octave & 3);
}

uint64_t middle_of(uint32_t length_class) { return (kLeastNs * (9 + 2 * (length_class & 3)) / 8) << length_class / 4; }

}  // namespace

void Rhythm::note_pause(uint64_t ns) {
  uint64_t step = ns / kStepNs;
  ++pauses_[step < kSteps ? step : kSteps];
  uint32_t all = 0;
  for (uint16_t count : pauses_) all += count;
  if (all > kKept)
    for (uint16_t& count : pauses_) count = static_cast<uint16_t>(count / 2);
  // The moment after the last one at which a sixth of the pauses that have lasted until then end soon.
  uint32_t at = kSteps, left = pauses_[kSteps], soon = 0;
  while (at > 0) {
    --at;
    left += pauses_[at];
    soon += pauses_[at] - (at + kSoon < kSteps ? pauses_[at + kSoon] : 0);
    if (soon && soon * 6 >= left) break;
    if (at == 0) return void(patience_ns_ = 0);
  }
  patience_ns_ = (at + 1) * kStepNs;
}

void Rhythm::note_period(uint64_t ns) {
  uint32_t length_class = class_of(ns);
  ++lengths_[length_class < kLengths ? length_class : kLengths - 1];
  if (++periods_ > kKept) {
    periods_ = 0;
    for (uint16_t& count : lengths_) periods_ = static_cast<uint16_t>(periods_ + (count /= 2));
  }
  uint32_t below = 0, at = 0;
  while (at < kLengths - 1 && (below + lengths_[at]) * 2 < periods_) below += lengths_[at++];
  usual_ns_ = middle_of(at);
}

uint64_t Rhythm::company_ns(uint32_t excess, uint64_t window) const {
  if (periods_ < kLeastPeriods) return 0;
  uint64_t most = 2 * usual_ns_ * excess / 1000;
  if (most > kMostCompanyNs) most = kMostCompanyNs;
  return most > window ? most - window : 0;
}

bool Rhythm::comes_first(bool busy, uint64_t company, uint64_t now) {
  if (now - seen_ > kUnseenNs) busy_since_ = idle_since_ = 0;
  seen_ = now;
  if (busy) {
    if (idle_since_) note_pause(now - idle_since_);
    idle_since_ = 0;
    if (!busy_since_) busy_since_ = now;
  } else {
    if (!busy_since_) return false;
    if (!idle_since_) idle_since_ = now;
    if (now - idle_since_ >= patience_ns_) {
      note_period(idle_since_ - busy_since_);
      busy_since_ = 0;
      return false;
    }
  }
  return now - busy_since_ >= company;
}

}  // namespace berth::shim
