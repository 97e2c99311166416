// Kernels of different processes take turns on a card: slices of 2 ms while somebody waits, first come first served.
// Nobody is held up by a process that is killed or stopped: a turn that is not given back in time is taken.
#pragma once
#include <cstdint>

namespace berth::sim {

inline constexpr int64_t kSliceNs = 2'000'000;

// Engine thread only. True when this process has the card now; otherwise it stands in the queue and is woken
// (wake_slot).
bool take_turn(int card);
bool has_turn(int card);
bool others_wait(int card);
void renew_turn(int card);  // a slice is over and nobody waits
void end_turn(int card);
void leave_queue(int card);  // no longer wants the card that it waits for

// Under the state's mutex: the process has died.
void forget_turns(int slot);

// Percent of the time for which anybody had the card, over about the last quarter of a second.
unsigned busy_percent(int card);

}  // namespace berth::sim
