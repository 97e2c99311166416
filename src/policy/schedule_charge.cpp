#include "policy/schedule_charge.h"

#include <algorithm>

namespace berth::policy {
namespace {

void bill(Contender& contender, Time amount, Time now) {
  contender.vtime += in_seconds(amount) / contender.share.weight;
  contender.since_waking += amount;
  contender.in_turn += amount;
  contender.charged += amount;
  contender.tokens -= amount;
  add(contender.history, now, amount);
}

// It had work that the device could run: it may run and had something outstanding, or what it had begun goes on.
bool is_present(const Contender& contender, const Sighting& sighting) {
  return contender.draining > 0 || (contender.held == Held::no && (sighting.outstanding > 0 || sighting.busy));
}

// The batches that were in flight when it had to stop. Each tick charges the hardware's part, so that a long kernel is
// paid for while it runs; the end replaces that by the exact rest of the run, as far as it is plausible. If nothing is
// complete after the time of the longest batch there was nothing in flight: the queue's head waited at the gate.
// Returns what has to be added to what the ticks charged; the others on the device had that much less.
Time settle_drain(Contender& contender, const Sighting& sighting, Time elapsed, int present, Time now) {
  contender.run_reported += sighting.service;
  const Time since = now - contender.stopped_at;
  bool done = sighting.completed >= contender.draining || sighting.outstanding == 0;
  contender.draining -= std::min(contender.draining, sighting.completed);
  if (!done) {
    Time longest = present * std::min(sighting.batch, kLongestDrain) * 5 / 4 + elapsed;
    if (since <= std::min(longest, kLongestDrain)) return Time(0);
    contender.draining = 0;
    return since > kLongestDrain ? Time(0) : -contender.drain_charged;
  }
  contender.draining = 0;
  Time rest = std::clamp(contender.run_reported - contender.run_charged, Time(0), since);
  return rest - contender.drain_charged;
}

// A job without a backlog is charged what it reports: at a tick it is seen working or not, and most of its bursts are
// shorter. What it was seen working and hasn't reported it may owe up to a quantum.
Time charge_report(Contender& contender, const Sighting& sighting, Time part, Time elapsed, Time quantum) {
  contender.owed += part;
  Time reported = std::min(sighting.service, elapsed + contender.owed);
  contender.owed = std::max(Time(0), contender.owed - reported);
  Time excess = std::max(Time(0), contender.owed - quantum);
  contender.owed -= excess;
  return reported + excess;
}

}  // namespace

void begin_run(Contender& contender) {
  contender.run_charged = contender.run_reported = contender.drain_charged = Time(0);
  contender.draining = 0;
}

void end_run(Contender& contender, const Sighting& sighting, Time now) {
  // Held by a higher level it had nothing in flight, or is charged by its reports.
  contender.draining = contender.present ? sighting.streams : 0;
  contender.stopped_at = now;
  contender.drain_charged = contender.owed = Time(0);
}

void charge_elapsed(DeviceTurns& turns, const std::map<JobId, Sighting>& sightings, Time elapsed, Time now,
                    const TurnSettings& settings) {
  static const Sighting nothing;
  auto sighting_of = [&](JobId job) -> const Sighting& {
    auto it = sightings.find(job);
    return it == sightings.end() ? nothing : it->second;
  };
  // Work of a higher level has the device for itself: the guests of lower ones hold theirs.
  int level = -1;
  for (auto& [job, contender] : turns.contenders)
    if ((contender.present = is_present(contender, sighting_of(job))))
      level = std::max(level, static_cast<int>(level_of(contender)));
  int present = 0, running = 0;
  Time bursts{0};  // between two ticks; the present ones have not had that time
  for (auto& [job, contender] : turns.contenders) {
    contender.present &= static_cast<int>(level_of(contender)) == level;
    present += contender.present;
    running += contender.present && contender.held == Held::no;
    if (contender.present) continue;
    const Sighting& sighting = sighting_of(job);
    Time burst = std::min(sighting.service, elapsed - bursts);
    bursts += burst;
    contender.draining -= std::min(contender.draining, sighting.completed);
    contender.run_charged += burst;
    contender.run_reported += burst;
    bill(contender, burst, now);
  }
  if (present == 0) return;
  Time part = (elapsed - bursts) / present, settled{0};
  for (auto& [job, contender] : turns.contenders) {
    if (!contender.present || contender.held == Held::no) continue;
    contender.drain_charged += part;
    Time rest = settle_drain(contender, sighting_of(job), elapsed, present, now);
    settled += rest;
    bill(contender, part + rest, now);
  }
  for (auto& [job, contender] : turns.contenders) {
    if (!contender.present || contender.held != Held::no) continue;
    const Sighting& sighting = sighting_of(job);
    Time amount =
        sighting.outstanding >= 2 ? part : charge_report(contender, sighting, part, elapsed, settings.quantum);
    amount -= settled / running;
    contender.run_charged += amount;
    contender.run_reported += sighting.service;
    bill(contender, amount, now);
  }
}

}  // namespace berth::policy
