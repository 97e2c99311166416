#include "policy/schedule_gate.h"

namespace berth::policy {

bool is_recent(const Contender& contender, Time now) {
  return contender.wants || now - contender.last_active < kRecent;
}

Gate gate_of(const DeviceTurns& turns, JobId job, Time now, Time latency_target) {
  const Contender& mine = turns.contenders.at(job);
  bool higher = false, equals = false;
  for (const auto& [id, other] : turns.contenders) {
    if (id == job) continue;
    higher |= other.share.priority > mine.share.priority;
    equals |= other.share.priority == mine.share.priority && is_recent(other, now) && is_recent(mine, now);
  }
  Gate gate;
  bool capped = mine.share.max_share.value_or(1) < 1;
  gate.hold = higher || equals || capped || mine.share.paused;
  gate.track = gate.hold || turns.contenders.size() > 1;
  if (gate.track) gate.window = higher ? latency_target : kWindowAmongEquals;
  return gate;
}

}  // namespace berth::policy
