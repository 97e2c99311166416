// This process's activity page, the pages of others that the daemon lets us watch, and what follows from them: may work that
// waits on the device go now? Decided by the helper thread (`pace`), every 20 us while work of ours is outstanding.
// No driver calls in here.
#pragma once
#include "shim/guest.h"
#include "shim/rhythm.h"
#include "wire/activity_page.h"

namespace berth::shim {

class Activity {
 public:
  static constexpr uint64_t kPaceNs = 20'000;

  // A new page, of a new connection; what waits under the old one goes.
  void adopt(wire::ActivityPage* page);
  wire::ActivityPage* page() const { return page_.load(std::memory_order_acquire); }

  // Takes the descriptor over; -1 with Relation::none.
  void watch(const wire::Watch& message, int fd);
  void forget_all();

  // Helper only. Returns true while work of ours is outstanding, so that the next look should come soon. `now` in ns.
  bool pace(const wire::DaemonPage& daemon, uint32_t device_count, uint64_t now);
  // Helper only. Nothing is held any more (no gate, or no daemon).
  void release();
  // Helper only. Sleeps until a submission wakes it, or for `ns`.
  void doze(uint64_t ns);

  // Submitting threads. Work is about to wait on the device, so the helper must not sleep.
  void wake() {
    if (dozing_.load(std::memory_order_seq_cst)) wake_slowly();
  }
  // Waits in the caller until work may go; for submissions that can't wait on the device.
  void wait_in_caller(uint32_t device);

 private:
  static constexpr uint32_t kMost = 64;
  struct Watched {
    const wire::ActivityPage* page;
    uint64_t client_id;
    wire::Relation relation;
    // By our ordinals.
    int8_t theirs[wire::kMaxDevices];  // its ordinal of the device, -1: it doesn't have it
    Rhythm rhythm[wire::kMaxDevices];
    uint32_t done[wire::kMaxDevices];  // of a peer: batches complete at `stuck_since`
    uint64_t stuck_since[wire::kMaxDevices];
  };
  struct Device {  // what the helper remembers of one
    uint64_t held_since, paced;
    uint32_t completed;  // when a starved batch was let go
    bool passing;
  };

  bool may_go(const wire::PageCard& rules, uint32_t device, uint64_t now);
  bool higher_is_busy(const wire::PageCard& rules, uint32_t device, uint64_t now);
  bool a_peer_is_stuck(uint32_t device, uint64_t now);
  bool starved(const wire::PageCard& rules, uint32_t device, uint64_t now);
  template <class Visit>
  void for_each_watched(wire::Relation relation, uint32_t device, Visit visit);
  void drop(Watched* watched);
  void wake_slowly();

  std::atomic<wire::ActivityPage*> page_{nullptr};
  std::atomic<uint32_t> dozing_;
  std::atomic<uint32_t> callers_;  // waiting in wait_in_caller
  GuestLock lock_;                 // the list of watched pages
  Watched watched_[kMost];
  uint32_t count_;
  Device devices_[wire::kMaxDevices];
};

}  // namespace berth::shim
