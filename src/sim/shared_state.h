// The cards, as all processes of one runtime folder see them: one state file, mapped by everybody, and one sparse
// memory file a card. The truth of who holds what is the page table; everything else can be derived from it.
//
// A process may be killed at any point. So the mutex is robust, a page changes hands by one last store, counters are
// recounted by whoever finds the mutex's holder dead, and a process is alive as long as its engine thread holds the
// mutex of its slot (the kernel marks it when that thread ends, in whatever way, and no descriptor can be closed by
// mistake).
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace berth::sim {

inline constexpr uint64_t kPageBytes = 2ull << 20;
inline constexpr uint64_t kReservedBytes = 644939776;  // recorded: NVML's total is the driver's total and this
inline constexpr int kMaxCards = 16;
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kMaxShares = 4096;
inline constexpr int kMaxEvents = 1024;

// CUcomputemode; 1 was exclusive to a thread once and 3 is exclusive to a process, which here is the same.
inline constexpr int32_t kModeDefault = 0, kModeProhibited = 2;

enum class PageKind : uint8_t { memory = 1, context = 2, module = 3, managed = 4 };

// A page is free when owner and share are both 0. A shared page belongs to its share and its owner says nothing.
struct Page {
  uint16_t owner;       // slot of the process + 1
  uint16_t share;       // index of the share + 1
  uint32_t index : 24;  // position within the shared memory
  uint32_t kind : 8;
};

enum class SlotState : uint32_t { free, alive, leaving };

struct ProcessSlot {
  pthread_mutex_t life;  // held by the process's engine thread
  SlotState state;
  int32_t pid;                 // as the process itself sees it
  uint64_t pid_space;          // inode of its pid namespace
  uint64_t start_time;         // field 22 of /proc/PID/stat
  int64_t noticed_ns;          // when its death was first noticed
  std::atomic<uint32_t> wake;  // futex: the engine sleeps on it
};

// Memory that more than one process may hold: free when no holder lives and its file is locked by no open descriptor.
struct Share {
  uint32_t used, generation;
  int32_t card;
  uint32_t pages;
  int32_t charged;  // the slot that NVML lists it for
  uint64_t holders[kMaxProcesses / 64];
};

// An event that other processes may open: a record is complete when `completed` has reached its number.
struct SharedEvent {
  uint32_t owner;  // slot of its maker + 1; 0: free
  std::atomic<uint64_t> recorded, completed;
};

// Whose turn it is on the card: the first in the queue; kernels of one process run for a slice while others wait.
struct Turn {
  int32_t holder;  // slot, -1 nobody
  int64_t since_ns;
  uint32_t waiting;
  int32_t queue[kMaxProcesses];
};

struct Card {
  unsigned char uuid[16];
  uint64_t memory;      // as the driver shows it
  uint64_t first_page;  // of its part of the page table
  uint32_t pages;
  int32_t compute_mode;       // CUcomputemode
  uint32_t exclusive_holder;  // slot + 1 of the process that has the contexts on a card of exclusive mode
  uint32_t free_pages, cursor;
  Turn turn;
  int64_t window_start_ns, window_busy_ns;
  uint32_t busy_percent;
};

struct State {
  uint64_t magic;
  uint32_t version, layout;
  uint32_t cards;
  uint64_t pages;  // of all cards
  std::atomic<int64_t> exit_ns;
  uint32_t slots_used, shares_used;  // no slot or share beyond was ever used
  pthread_mutex_t mutex;
  ProcessSlot slots[kMaxProcesses];
  Share shares[kMaxShares];
  SharedEvent events[kMaxEvents];
  Card card[kMaxCards];
  // Behind it: the page table, card after card.
};

// Maps the folder's state, making it where there is none; sticks for the life of the process. Thread safe.
// Empty, or one line that says what is wrong.
std::string attach_state();
bool state_attached();
State& state();
std::string folder_file(const std::string& name);
// Opens (or makes, as open to others as the folder is) a file of the folder, close-on-exec.
UniqueFd open_folder_file(const std::string& name, int flags);
inline Page* pages_of(int card) {
  return reinterpret_cast<Page*>(&state() + 1) + state().card[card].first_page;
}

// Holds the state's mutex. On construction the dead have been noticed and those dead for long enough have been cleared.
class StateLock {
 public:
  StateLock();
  ~StateLock();
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
};

// Called by the engine thread only, which must live as long as the process: takes a slot, or -1.
int join_state();
int own_slot();  // -1 before

// The process of the slot as this process sees it; where it lives in another pid namespace, /proc is searched.
int32_t pid_seen_here(const ProcessSlot& slot);

int64_t now_ns();
void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns);
void futex_wake(const std::atomic<uint32_t>& word);
void wake_slot(int slot);

}  // namespace berth::sim
