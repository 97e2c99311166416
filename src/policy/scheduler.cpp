#include "policy/scheduler.h"

#include <algorithm>

#include "policy/schedule_charge.h"

namespace berth::policy {
namespace {

using Standing = std::vector<std::pair<JobId, Contender*>>;

// Those of one level who could run, in the order of their turns.
Standing standing(DeviceTurns& turns, size_t level) {
  Standing all;
  for (auto& [job, contender] : turns.contenders)
    if (contender.stands && level_of(contender) == level) all.emplace_back(job, &contender);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second->vtime < b.second->vtime; });
  return all;
}

struct Field {
  size_t count = 0;
  double weights = 0;
};
Field field_of(const DeviceTurns& turns, const Contender& mine) {
  Field field;
  for (const auto& [job, contender] : turns.contenders)
    if ((contender.stands || &contender == &mine) && level_of(contender) == level_of(mine)) {
      ++field.count;
      field.weights += contender.share.weight;
    }
  return field;
}

Time length_of(const DeviceTurns& turns, const Contender& contender, const TurnSettings& settings) {
  Field field = field_of(turns, contender);
  Time cycle = std::min(settings.cycle, settings.quantum * static_cast<int64_t>(field.count));
  return std::max(settings.least_turn, scaled(cycle, contender.share.weight / field.weights));
}

// In every second at most `share` of it, whatever the alignment: the bucket makes even pulses, and the sum over the
// last second is the bound. A pulse ends a tick early rather than late.
void throttle(Contender& contender, Time passed, Time now) {
  if (!contender.share.max_share || *contender.share.max_share >= 1) {
    contender.throttled = false;
    return;
  }
  const double share = *contender.share.max_share;
  const Time full = pulse(share);
  contender.tokens = std::min(full, contender.tokens + scaled(passed, share));
  const Time ahead = std::min(passed, kSlowTick);  // may go by until the next tick
  advance(contender.history, now);
  bool second_full = contender.history.in_second + ahead > scaled(std::chrono::seconds(1), share);
  if (contender.throttled)
    contender.throttled = second_full || contender.tokens < full;
  else
    contender.throttled = second_full || contender.tokens <= ahead / 2;
}

// Who stands at this tick. Standing up after a rest earns no credit beyond one quantum.
void see(DeviceTurns& turns, const std::map<JobId, Sighting>& sightings, Time elapsed, Time passed, Time now,
         const TurnSettings& settings) {
  std::array<double, 3> least = turns.floor;
  for (size_t level = 0; level < least.size(); ++level)
    if (auto all = standing(turns, level); !all.empty())
      least[level] = std::max(least[level], all.front().second->vtime);
  turns.floor = least;
  for (auto& [job, contender] : turns.contenders) {
    auto it = sightings.find(job);
    const Sighting sighting = it == sightings.end() ? Sighting() : it->second;
    if (contender.wants && contender.held != Held::no)
      contender.held_for[static_cast<size_t>(contender.held)] += elapsed;
    contender.wants = sighting.busy || sighting.outstanding > 0;
    contender.backlog = sighting.outstanding >= 2;
    if (contender.wants || sighting.submitted > 0 || sighting.completed > 0) contender.last_active = now;
    throttle(contender, passed, now);
    bool stands = contender.wants && !contender.share.paused && !contender.throttled;
    if (stands && !contender.stands) {
      double credit = in_seconds(settings.quantum) / contender.share.weight;
      contender.vtime = std::max(contender.vtime, least[level_of(contender)] - credit);
      contender.since_waking = Time(0);
      contender.waits_since = now;
    }
    contender.stands = stands;
  }
}

JobId first_starved(const Standing& all, JobId holder, Time now, const TurnSettings& settings) {
  for (const auto& [job, contender] : all)
    if (job != holder && contender->held == Held::turn && now - contender->waits_since >= settings.starvation)
      return job;
  return 0;
}

// The holder of the level's turn from now on.
JobId choose_holder(const DeviceTurns& turns, const Standing& all, size_t level, Time elapsed, Time now,
                    const TurnSettings& settings) {
  if (all.empty()) return 0;
  auto held =
      std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == turns.holders[level]; });
  if (held == all.end() || held->second->in_turn + elapsed / 2 >= length_of(turns, *held->second, settings)) {
    if (JobId starved = first_starved(all, 0, now, settings)) return starved;
    return all.front().first;
  }
  const Contender& holder = *held->second;
  if (now - turns.turn_began[level] < settings.preempt || holder.since_waking < settings.quantum) return held->first;
  for (const auto& [job, contender] : all)
    if (contender->since_waking < settings.quantum && contender->vtime < holder.vtime) return job;
  return held->first;
}

// The holder runs, and behind a holder without a backlog the next ones, so that the device has work. One who is ahead
// of the holder by more than two of the holder's quanta is not among them: it would take what is the holder's.
void let_run(const DeviceTurns& turns, Standing& all, size_t level, const TurnSettings& settings) {
  const Contender* holder = nullptr;
  for (auto& [job, contender] : all)
    if (job == turns.holders[level]) holder = contender;
  if (!holder) return;
  bool filled = holder->backlog;
  double limit = holder->vtime + 2 * in_seconds(settings.quantum) / holder->share.weight;
  for (auto& [job, contender] : all) {
    bool runs = contender == holder || (!filled && contender->vtime <= limit);
    if (runs) filled |= contender->backlog;
    contender->held = runs ? Held::no : Held::turn;
  }
}

void decide_level(DeviceTurns& turns, size_t level, Time elapsed, Time now, const TurnSettings& settings) {
  Standing all = standing(turns, level);
  if (!all.empty()) turns.floor[level] = std::max(turns.floor[level], all.front().second->vtime);
  JobId holder = choose_holder(turns, all, level, elapsed, now, settings);
  bool over = holder != turns.holders[level];
  if (auto it = turns.contenders.find(holder); it != turns.contenders.end()) {
    over |= it->second.in_turn + elapsed / 2 >= length_of(turns, it->second, settings);
    if (over) it->second.in_turn = Time(0);
  }
  if (over) turns.turn_began[level] = now;
  turns.holders[level] = holder;
  let_run(turns, all, level, settings);
}

bool is_contended(const DeviceTurns& turns) {
  std::array<int, 3> standing{};
  for (const auto& [job, contender] : turns.contenders) {
    if (contender.wants && (contender.throttled || contender.share.max_share.value_or(1) < 1)) return true;
    if (contender.draining > 0) return true;
    if (contender.stands && ++standing[level_of(contender)] > 1) return true;
  }
  return false;
}

}  // namespace

const char* to_string(Held held) {
  switch (held) {
    case Held::no:
      return "";
    case Held::turn:
      return "turn";
    case Held::max_share:
      return "max_share";
    case Held::paused:
      return "paused";
  }
  return "?";
}

void set_contender(DeviceTurns& turns, JobId job, const TimeShare& share) {
  auto [it, fresh] = turns.contenders.try_emplace(job);
  Contender& contender = it->second;
  const TimeShare before = std::exchange(contender.share, share);
  double floor = turns.floor[level_of(contender)];
  if (fresh || before.priority != share.priority) {
    contender.vtime = floor;
    contender.waits_since = turns.ticked;
  } else if (before.weight != share.weight) {  // what it is ahead or behind, in service, must not grow with the weight
    contender.vtime = floor + (contender.vtime - floor) * before.weight / share.weight;
  }
  if (share.max_share && before.max_share != share.max_share) contender.tokens = pulse(*share.max_share);
  if (fresh && share.paused) contender.held = Held::paused;
}

void remove_contender(DeviceTurns& turns, JobId job) {
  turns.contenders.erase(job);
  for (JobId& holder : turns.holders)
    if (holder == job) holder = 0;
}

void tick(DeviceTurns& turns, const std::map<JobId, Sighting>& sightings, Time now, const TurnSettings& settings) {
  const Time passed = std::max(Time(0), now - turns.ticked), elapsed = turns.asleep ? Time(0) : passed;
  turns.ticked = now;
  charge_elapsed(turns, sightings, elapsed, now, settings);
  see(turns, sightings, elapsed, passed, now, settings);
  std::map<JobId, Held> before;
  for (auto& [job, contender] : turns.contenders) {
    before[job] = contender.held;
    // Who wants nothing may begin at once; the next tick judges.
    if (!contender.stands)
      contender.held = contender.share.paused ? Held::paused : contender.throttled ? Held::max_share : Held::no;
  }
  for (size_t level = 0; level < turns.holders.size(); ++level) decide_level(turns, level, elapsed, now, settings);
  for (auto& [job, contender] : turns.contenders) {
    if (contender.held != Held::no) contender.last_held = contender.held;
    if (contender.held != Held::turn) contender.waits_since = now;
    bool ran = before[job] == Held::no, runs = contender.held == Held::no;
    if (!ran && runs) begin_run(contender);
    if (ran && !runs) end_run(contender, sightings.contains(job) ? sightings.at(job) : Sighting(), now);
  }
  if (is_contended(turns)) turns.contended = now;
  turns.asleep = !next_tick(turns, now);
}

std::optional<Time> next_tick(const DeviceTurns& turns, Time now) {
  if (now - turns.contended < kStaysFast) return kFastTick;
  for (const auto& [job, contender] : turns.contenders)
    if (now - contender.last_active < kStaysAwake) return kSlowTick;
  return std::nullopt;
}

Time turn_length(const DeviceTurns& turns, JobId job, const TurnSettings& settings) {
  return length_of(turns, turns.contenders.at(job), settings);
}

Time waiting_bound(const DeviceTurns& turns, JobId job, const TurnSettings& settings) {
  const Contender& contender = turns.contenders.at(job);
  Field field = field_of(turns, contender);
  if (field.count < 2) return Time(0);
  Time turn = length_of(turns, contender, settings);
  Time bound = std::max({settings.cycle, settings.least_turn * static_cast<int64_t>(field.count),
                         scaled(turn, field.weights / contender.share.weight)});
  return std::min(bound, settings.starvation + settings.cycle);
}

}  // namespace berth::policy
