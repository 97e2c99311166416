// This process as a client of the daemon: one connection, one account. Any thread.
//
// What is granted is on the account at once, here and at the daemon, so whoever dies in between loses nothing for others.
// While the daemon is away, released bytes stay on the account as slack that may be taken again; more waits up to 5 s.
#pragma once
#include "shim/activity.h"
#include "shim/allocation_table.h"
#include "shim/guest.h"
#include "wire/guest_protocol.h"

namespace berth::shim {

inline constexpr uint64_t kDaemonPatienceNs = 5'000'000'000;

// What this library tells of itself in the hello; filled in by the driver or the management library's side.
struct Introduction {
  wire::Role role;
  int32_t driver_version;
  uint32_t unknown_symbols, missing_symbols;
  uint32_t device_count;
  wire::Uuid devices[wire::kMaxDevices];
};

class Connection {
 public:
  // Connects, says hello, maps the page. Refused or nobody there: false (`refused` tells which).
  bool open(const Introduction& introduction, bool* refused);
  void close();
  // False when the descriptor is no longer ours: programs close and reuse all numbers.
  bool is_ours() const;
  bool send(const void* message, size_t size, bool wait);
  // A reply to `sequence` into `out`; false on anything else, also when nothing came within the patience. What the daemon
  // says unasked meanwhile goes to `activity`.
  bool receive(void* out, size_t size, uint32_t sequence, Activity& activity);
  // What has come unasked, without waiting.
  void receive_unasked(Activity& activity);
  int fd() const { return fd_; }
  const wire::DaemonPage* page() const { return page_; }
  wire::ActivityPage* activity_page() const { return activity_page_; }

 private:
  bool hello(const Introduction& introduction, bool* refused);
  bool map_pages_of(const int* descriptors, int count, uint32_t page_size);
  int fd_ = -1;
  uint64_t device_ = 0, inode_ = 0;
  const wire::DaemonPage* page_ = nullptr;
  wire::ActivityPage* activity_page_ = nullptr;  // null: the daemon gave none
};

class Streams;

class Client {
 public:
  // Puts `bytes` on the account if the daemon grants them; `granted` is what to release later (differs only for contexts).
  // `why` is set where the daemon has refused.
  bool reserve(uint32_t device, wire::Kind kind, uint64_t bytes, wire::Force force, uint64_t* granted, wire::GrantStatus* why = nullptr);
  void release(uint32_t device, wire::Kind kind, uint64_t bytes);

  // What an allocation needs on the account, and its release. Small ones (Allocation::shares_page) are packed into pages by
  // the driver; the account has the pages that all of them fill, so most cost no message.
  bool reserve(const Allocation& what, wire::Force force, uint64_t* granted);
  void release(const Allocation& what);
  // Waits until the daemon has seen our releases, so that a program that frees and then asks sees what it would see alone.
  void settle_releases(uint32_t device);
  // The driver's own use of the device may have changed.
  void refresh(uint32_t device);
  void notice(wire::NoticeCode code, uint32_t device, uint64_t value, const char* text);

  // A device's place in the daemon's page, which is what messages name: its ordinal here, unless the program sees its virtual
  // devices in another order or only some of them (set once, before anything is on the account).
  void set_places(const uint8_t* places, uint32_t count);
  uint32_t place_of(uint32_t ordinal) const { return ordinal < wire::kMaxDevices ? places_[ordinal] : ordinal; }

  // The numbers of a device, null if the daemon doesn't know it. The page may be replaced by a newer one at any time.
  const wire::PageDevice* device(uint32_t ordinal) const;
  // The rules for time on a card, by its number in our hello.
  const wire::PageCard* card(uint32_t ordinal) const {
    const wire::DaemonPage* there = page();
    return there && ordinal < wire::kMaxDevices ? &there->cards[ordinal] : nullptr;
  }
  const wire::DaemonPage* page() const { return page_.load(std::memory_order_acquire); }

  // Tells the daemon once that there is work again, while it wants to be told.
  void tell_activity(bool wanted);

  AllocationTable table;
  Activity activity;
  std::atomic<Streams*> streams;  // the driver's side of it, made when submissions are first tracked
  std::atomic<bool> has_pools;   // this process uses stream-ordered memory: synchronisations look at the pools
  std::atomic<bool> has_graph_memory;  // a graph with memory nodes has been instantiated
  std::atomic<bool> has_splits;        // a graph that can be split has been instantiated
  std::atomic<uint32_t> split_parts;   // of all of them

 private:
  friend bool attach(const Introduction& introduction, void (*prepare)(Client&, const Introduction&));
  friend void* helper_main(void* argument);

  bool ready();      // connected, or reconnected; lock held
  bool reconnect();  // lock held
  void lose_connection();  // lock held
  void flush_releases();
  void start_helper();
  bool pace();           // helper only: looks after held work once; false: nothing is held

  GuestLock lock_;  // the connection and the account
  Connection connection_;
  Introduction introduction_;
  uint32_t ordinals_;  // that anything can be on the account of
  uint8_t places_[wire::kMaxDevices];
  std::atomic<const wire::DaemonPage*> page_{nullptr};
  uint32_t sequence_ = 0;
  std::atomic<bool> releases_on_the_way_;  // sent since the last answer of the daemon
  std::atomic<uint32_t> told_activity_;
  bool refused_ = false;  // a new daemon has refused us: go on with what we have, ask no more
  uint64_t held_[wire::kMaxDevices][static_cast<int>(wire::Kind::count)];  // on the account
  uint64_t slack_[wire::kMaxDevices];   // released while the daemon was away: ours to take again until it is back
  GuestLock small_lock_;                 // the two below; held while pages are asked for
  uint64_t small_bytes_[wire::kMaxDevices], small_pages_[wire::kMaxDevices];  // of allocations that share pages: in use, on the account
  uint64_t unsent_[wire::kMaxDevices][static_cast<int>(wire::Kind::count)];  // releases that did not fit the socket
};

// Makes this process a client, once; a second thread waits for the first. `prepare` runs before it counts as one. False: go on
// as if there were no berth.
bool attach(const Introduction& introduction, void (*prepare)(Client&, const Introduction&) = nullptr);

}  // namespace berth::shim
