// Taking, giving and sharing the cards' pages. Everything here locks the state itself, except where it says otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/shared_state.h"

namespace berth::sim {

struct Run {
  uint32_t first, count;
};
using Runs = std::vector<Run>;

inline uint32_t pages_for(uint64_t bytes) { return static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes); }

// All or nothing; false: the card has not that many free pages, or this process has no slot.
bool take_pages(int card, uint32_t count, PageKind kind, Runs* runs);
// Their content is gone when this returns. Pages of a share are left alone: leave_share() is theirs.
void give_pages(int card, const Runs& runs);

uint64_t free_bytes(int card);

// A process may have contexts on a card as its compute mode allows it: claimed before the first one on that card, given up
// after the last one. False: prohibited, or exclusive and another process's (a dead one's until it is forgotten).
bool claim_contexts(int card);
void give_up_contexts(int card);

struct Usage {
  int32_t pid;
  uint64_t bytes;
};
// Each process that has a context on the card (also one that is leaving), with all but its managed pages.
std::vector<Usage> usage_of(int card);

// Makes memory of this process shareable; it holds it itself. -1 when there are no more shares.
struct ShareName {
  int32_t index;
  uint32_t generation;
};
int share_pages(int card, const Runs& runs, ShareName* name);
// Joins the holders; false when the share has gone. `runs` is in the order of the memory.
bool join_share(const ShareName& name, int* card, Runs* runs);
void leave_share(const ShareName& name);
// A descriptor that keeps the share alive and names it (ShareName is its content), close-on-exec; -1 on failure.
int open_share_file(const ShareName& name);
bool read_share_file(int fd, ShareName* name);

// Under the state's mutex: frees what a dead process held; recounts what can be derived from the page table.
void forget_process(int slot);
void recount_pages();

}  // namespace berth::sim
