// The page that the daemon writes for each client: a sealed memfd, mapped read-only by the guest.
//
// One writer (the daemon's event loop), any number of readers in one process. Every field stands alone: a reader may see
// one field new and another old, and nothing is decided on two of them together. `gate` is a shared futex word.
// The layout carries a version; a guest that doesn't know it uses none of the page.
// Guest-safe.
#pragma once
#include <atomic>
#include <cstdint>

#include "wire/guest_protocol.h"

namespace berth::wire {

inline constexpr uint32_t kPageLayout = 1;
inline constexpr uint64_t kNoQuota = ~0ull;

struct PageDevice {
  Uuid uuid;                        // frozen
  uint64_t total_bytes;             // frozen at attach: the quota, or the device's own total without one
  uint64_t quota_bytes;             // kNoQuota without one; for people, decisions are the daemon's
  std::atomic<uint64_t> free_bytes; // what the job could still be granted (never more than quota - used)
  std::atomic<uint64_t> used_bytes; // by the whole job, overhead included
  std::atomic<uint64_t> leaving_bytes;  // of dead clients, not yet back: worth waiting for on a real out-of-memory
};

struct DaemonPage {
  uint32_t magic;   // kMagic
  uint32_t layout;  // kPageLayout
  uint32_t size;    // sizeof(DaemonPage)
  std::atomic<uint32_t> gate;         // 0: submissions may pass. Nothing sets it yet (scheduling and swapping will)
  std::atomic<uint32_t> device_count;
  std::atomic<uint32_t> pid_count;    // of the job's processes on a GPU, as the daemon and NVML number them
  PageDevice devices[kMaxDevices];    // by the guest's ordinals; uuid all zero = a device that the daemon doesn't know
  std::atomic<uint32_t> pids[kMaxJobPids];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace berth::wire
