// This process's activity page, the pages of others that the daemon lets us watch, and what follows from them: may work that
// waits on the device go now? Decided by the helper thread (`pace`), every 20 us while work of ours is outstanding.
// No driver calls in here.
#pragma once
#include "shim/guest.h"
#include "wire/activity_page.h"

namespace berth::shim {

// How a higher client's work comes and goes. A service with requests in its queue pauses between them for as long as its own
// code takes; a batch let go in such a pause would delay the next request and gain little. So a pause counts as one when it has
// lasted so long that the client is unlikely to be back at once, judged by its pauses so far.
class Rhythm {
 public:
  // Must the client be waited for, being busy now or not? Not while a busy period is younger than `company`.
  bool comes_first(bool busy, uint64_t company, uint64_t now);

 private:
  static constexpr uint64_t kStepNs = 20'000;
  static constexpr uint32_t kSteps = 16, kSoon = 3;  // "at once" is three steps

  void note_pause(uint64_t ns);

  uint64_t busy_since_, idle_since_;  // 0: it was not so at the last look
  uint64_t patience_ns_;
  uint16_t pauses_[kSteps + 1];       // by their length in steps; the last one has all longer ones
};

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

  bool may_go(const wire::PageDevice& rules, uint32_t device, uint64_t now);
  bool higher_is_busy(const wire::PageDevice& rules, uint32_t device, uint64_t now);
  bool a_peer_is_stuck(uint32_t device, uint64_t now);
  bool starved(const wire::PageDevice& rules, uint32_t device, uint64_t now);
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
