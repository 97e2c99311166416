// The page in which a client says what it does on the devices: a memfd made by the daemon, mapped writable by that client
// alone (then sealed), read by the daemon and by those clients that the daemon lets watch it.
//
// Readers trust nothing here: a client that lies gains a bounded advantage over those that the daemon let it stand above,
// and never over memory. Every field stands alone. The device itself writes `completed` and `started` (stream memory
// operations, 4 bytes) and reads `go`, so the page is registered with the driver as host memory.
// Guest-safe.
#pragma once
#include <atomic>
#include <cstdint>

#include "wire/guest_protocol.h"

namespace berth::wire {

inline constexpr uint32_t kActivityLayout = 3;
inline constexpr uint32_t kActivitySlots = 256;  // PyTorch alone has a pool of 32 streams for each priority

// One stream of the client. A batch is some consecutive submissions of one stream with a mark after the last one.
struct ActivitySlot {
  std::atomic<uint32_t> submitted;  // batches whose mark has been submitted, modulo 2^32
  std::atomic<uint32_t> completed;  // written by the device at a batch's mark, by the client after a synchronisation
  std::atomic<uint32_t> started;    // batches that the device has begun; only kept where the job has several clients
  std::atomic<uint32_t> open;       // 1: there are submissions after the last mark
  std::atomic<uint32_t> device;     // the client's ordinal
  uint32_t pad;
  std::atomic<uint64_t> last_ns;    // CLOCK_MONOTONIC of the last submission
  std::atomic<uint64_t> due_ns;     // when the submissions after the last mark should be complete, as far as lengths are known
};

struct ActivityDevice {
  std::atomic<uint32_t> go;       // held batches wait on the device until this is 1
  std::atomic<uint32_t> held_by;       // why go is 0: 0 it is not, 1 a busy higher client, 2 the daemon
  std::atomic<uint64_t> service_ns;    // learned lengths of the batches completed so far
  std::atomic<uint64_t> submissions;   // gathered so far
  std::atomic<uint64_t> held_ns;       // time with work outstanding and go 0, so far
  std::atomic<uint64_t> batch_ns;      // learned length of the longest batch of late: what a window means here
  std::atomic<uint64_t> blocker;       // client_id of the higher client that was last seen busy
  std::atomic<uint64_t> company_ns;    // work goes on until a higher client has been busy for so long (its latency budget)
};

struct ActivityPage {
  uint32_t magic;   // kMagic, written by the daemon
  uint32_t layout;  // kActivityLayout
  uint32_t size;    // sizeof(ActivityPage)
  std::atomic<uint32_t> slot_count;  // slots in use are the first ones
  ActivityDevice devices[kMaxDevices];  // by the client's ordinals
  ActivitySlot slots[kActivitySlots];
};
static_assert(sizeof(ActivityPage) <= 16384);

// Calls visit(slot) for each stream that the page shows on the device.
template <class Visit>
inline void for_each_slot(const ActivityPage& page, uint32_t device, Visit visit) {
  uint32_t count = page.slot_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kActivitySlots; ++i)
    if (page.slots[i].device.load(std::memory_order_relaxed) == device) visit(page.slots[i]);
}

// Has the client work outstanding on the device, as far as its page tells? `now` in CLOCK_MONOTONIC nanoseconds.
// Submissions without a mark yet count until they are due, and for `kQuietNs` after the last one: more may follow.
inline constexpr uint64_t kQuietNs = 50'000;
inline bool is_busy(const ActivityPage& page, uint32_t device, uint64_t now) {
  bool busy = false;
  for_each_slot(page, device, [&](const ActivitySlot& slot) {
    if (slot.open.load(std::memory_order_acquire))
      busy |= now < slot.due_ns.load(std::memory_order_relaxed) || now < slot.last_ns.load(std::memory_order_relaxed) + kQuietNs;
    busy |= slot.completed.load(std::memory_order_acquire) != slot.submitted.load(std::memory_order_relaxed);
  });
  return busy;
}

// Batches that are not complete; held ones are among them.
inline uint32_t outstanding(const ActivityPage& page, uint32_t device) {
  uint32_t sum = 0;
  for_each_slot(page, device, [&](const ActivitySlot& slot) {
    sum += slot.submitted.load(std::memory_order_relaxed) - slot.completed.load(std::memory_order_relaxed);
  });
  return sum;
}

}  // namespace berth::wire
