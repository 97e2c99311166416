#include "sim/turns.h"

#include <algorithm>

#include "sim/shared_state.h"

namespace berth::sim {
namespace {

constexpr int64_t kWindowNs = 250'000'000;
constexpr int64_t kStuckNs = 5 * kSliceNs;

void account(Card& card, int64_t from, int64_t to) {
  card.window_busy_ns += std::max<int64_t>(0, to - std::max(from, card.window_start_ns));
}

void roll_window(Card& card, int64_t now) {
  int64_t length = now - card.window_start_ns;
  if (length < kWindowNs) return;
  card.busy_percent = static_cast<uint32_t>(std::min<int64_t>(100, card.window_busy_ns * 100 / length));
  card.window_start_ns = now, card.window_busy_ns = 0;
}

void remove_from_queue(Turn& turn, int slot) {
  int32_t* end = std::remove(turn.queue, turn.queue + turn.waiting, slot);
  turn.waiting = static_cast<uint32_t>(end - turn.queue);
}

}  // namespace

bool take_turn(int index) {
  StateLock lock;
  Card& card = state().card[index];
  Turn& turn = card.turn;
  int self = own_slot();
  if (turn.holder == self) return true;
  if (std::find(turn.queue, turn.queue + turn.waiting, self) == turn.queue + turn.waiting &&
      turn.waiting < kMaxProcesses)
    turn.queue[turn.waiting++] = self;
  int64_t now = now_ns();
  bool stuck = now - turn.since_ns > kStuckNs;
  if (turn.holder >= 0 && stuck) {
    account(card, turn.since_ns, now);
    turn.holder = -1;
  }
  if (turn.holder >= 0 || (turn.queue[0] != self && !stuck)) return false;
  remove_from_queue(turn, self);
  turn.since_ns = now;
  turn.holder = self;
  return true;
}

bool has_turn(int card) {
  return std::atomic_ref<int32_t>(state().card[card].turn.holder).load(std::memory_order_relaxed) == own_slot();
}

bool others_wait(int card) {
  return std::atomic_ref<uint32_t>(state().card[card].turn.waiting).load(std::memory_order_relaxed) > 0;
}

void renew_turn(int index) {
  StateLock lock;
  Card& card = state().card[index];
  if (card.turn.holder != own_slot()) return;
  int64_t now = now_ns();
  account(card, card.turn.since_ns, now);
  roll_window(card, now);
  card.turn.since_ns = now;
}

void end_turn(int index) {
  int next = -1;
  renew_turn(index);
  {
    StateLock lock;
    Turn& turn = state().card[index].turn;
    if (turn.holder != own_slot()) return;
    turn.holder = -1;
    if (turn.waiting) next = turn.queue[0];
  }
  if (next >= 0) wake_slot(next);
}

void leave_queue(int index) {
  StateLock lock;
  remove_from_queue(state().card[index].turn, own_slot());
}

void forget_turns(int slot) {
  for (Card& card : state().card) {
    remove_from_queue(card.turn, slot);
    if (card.turn.holder != slot) continue;
    account(card, card.turn.since_ns, now_ns());
    card.turn.holder = -1;
  }
}

unsigned busy_percent(int index) {
  StateLock lock;
  Card& card = state().card[index];
  int64_t now = now_ns();
  if (now - card.window_start_ns < kWindowNs) return card.busy_percent;
  if (card.turn.holder >= 0) account(card, card.turn.since_ns, now);
  roll_window(card, now);
  return card.busy_percent;
}

}  // namespace berth::sim
