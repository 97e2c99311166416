// The page that the daemon writes for each client: a sealed memfd, mapped read-only by the guest.
//
// One writer (the daemon's event loop), any number of readers in one process. Every field stands alone: a reader may see
// one field new and another old, and nothing is decided on two of them together. `gate` is a shared futex word; the device reads nothing here.
// The layout carries a version; a guest that doesn't know it uses none of the page.
// Guest-safe.
#pragma once
#include <atomic>
#include <cstdint>

#include "wire/guest_protocol.h"

namespace berth::wire {

inline constexpr uint32_t kPageLayout = 6;
inline constexpr uint64_t kNoQuota = ~0ull;

// Bits of DaemonPage::gate. 0: submissions pass with one look at the word.
inline constexpr uint32_t kGateShut = 1;   // callers wait before they submit
inline constexpr uint32_t kGateTrack = 2;  // submissions are gathered in batches and published in the activity page
inline constexpr uint32_t kGateTell = 8;   // with track: the next submission is told to the daemon (`active`), once
inline constexpr uint32_t kGateHold = 4;   // with track: batches wait on the device until ActivityDevice::go says so
inline constexpr uint32_t kGateStarted = 16;  // with hold: the device also writes ActivitySlot::started (peers look at it)

// PageCard::may_run
inline constexpr uint32_t kRunHeld = 0;   // not this job's turn, its share is used up, or it is paused
inline constexpr uint32_t kRunFree = 1;   // as far as the daemon is concerned; busy clients of higher priority still come first

// Memory of one device as the program is shown it: its own device, or a virtual one that lies on it.
struct PageDevice {
  Uuid uuid;                         // frozen; of the virtual device if it is one
  Uuid card;                         // frozen; of the card that it lies on
  uint64_t total_bytes;              // frozen at attach: the quota, or the card's own total without one
  uint64_t quota_bytes;              // kNoQuota without one; for people, decisions are the daemon's
  std::atomic<uint64_t> free_bytes;  // what could still be granted, perhaps after a wait for what leaves (never more than quota - used)
  std::atomic<uint64_t> used_bytes;  // by all living processes of the job, overhead included
  std::atomic<uint64_t> leaving_bytes;  // of dead clients, not yet back: worth waiting for on a real out-of-memory
  std::atomic<uint32_t> compute_mode;   // that holds on the card, as CUcomputemode: the card's own or the configuration's
};

// Time on one card.
struct PageCard {
  std::atomic<uint32_t> may_run;     // kRun...
  std::atomic<uint32_t> paused;      // 1: held without any exception
  std::atomic<uint64_t> window_ns;   // GPU time of one batch: what may still run when the job has to stop
  std::atomic<uint32_t> excess;      // latency budget X of the strictest higher job, as (X - 1) in thousandths; 0: no company
  std::atomic<uint64_t> starved_ns;  // held for so long by higher clients: one batch goes all the same
};

struct DaemonPage {
  uint32_t magic;   // kMagic
  uint32_t layout;  // kPageLayout
  uint32_t size;    // sizeof(DaemonPage)
  uint32_t virtual_devices;  // frozen; how many the job has been given (`-g`); 0: it sees its cards themselves
  std::atomic<uint32_t> gate;         // kGate... bits
  std::atomic<uint32_t> device_count;
  std::atomic<uint32_t> pid_count;    // of the job's processes on a GPU, as the daemon and NVML number them
  std::atomic<uint64_t> split_ns;     // graphs of more GPU time are launched in parts while work is held; 0: never
  PageDevice devices[kMaxDevices];    // the virtual devices in their order, else the guest's cards; uuid all zero = unknown to the daemon
  PageCard cards[kMaxDevices];        // by the guest's ordinals, as in its hello
  std::atomic<uint32_t> pids[kMaxJobPids];
  std::atomic<uint32_t> pid_devices[kMaxJobPids];  // by pid: bits of the job's virtual devices that it holds memory of
};
static_assert(kMaxDevices <= 32);  // bits of pid_devices
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace berth::wire
