#include "shim/client.h"

#include <linux/time_types.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "shim/footprint.h"
#include "shim/gate.h"

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000
#endif

namespace berth::shim {

using wire::Kind;

// Without a daemon the time gate is open.
void Client::lose_connection() {
  connection_.close();
  __atomic_store_n(&berth_fork_page->gate, nullptr, __ATOMIC_RELEASE);
}

bool Client::reconnect() {
  lose_connection();
  if (refused_) return false;
  if (!connection_.open(introduction_, &refused_)) return false;
  page_.store(connection_.page(), std::memory_order_release);
  activity.forget_all();
  activity.adopt(connection_.activity_page());
  told_activity_.store(0, std::memory_order_relaxed);
  __atomic_store_n(&berth_fork_page->gate, &connection_.page()->gate, __ATOMIC_RELEASE);
  for (uint32_t device = 0; device < ordinals_; ++device) {
    slack_[device] = 0;
    for (int kind = 0; kind < static_cast<int>(Kind::count); ++kind) {
      unsent_[device][kind] = 0;
      if (!held_[device][kind]) continue;
      auto holdings = wire::make_message<wire::Holdings>(++sequence_);
      holdings.device = place_of(device);
      holdings.kind = static_cast<Kind>(kind);
      holdings.bytes = held_[device][kind];
      if (!connection_.send(&holdings, sizeof holdings, true)) return false;
    }
  }
  auto last = wire::make_message<wire::Holdings>(++sequence_);
  last.last = 1;
  return connection_.send(&last, sizeof last, true);
}

bool Client::ready() { return connection_.is_ours() || reconnect(); }

void Client::flush_releases() {
  for (uint32_t device = 0; device < ordinals_; ++device)
    for (int kind = 0; kind < static_cast<int>(Kind::count); ++kind) {
      uint64_t& bytes = unsent_[device][kind];
      if (!bytes) continue;
      auto release = wire::make_message<wire::Release>(++sequence_);
      release.device = place_of(device);
      release.kind = static_cast<Kind>(kind);
      release.bytes = bytes;
      if (!connection_.send(&release, sizeof release, false)) return;
      bytes = 0;
      releases_on_the_way_.store(true, std::memory_order_relaxed);
    }
}

bool Client::reserve(uint32_t device, Kind kind, uint64_t bytes, wire::Force force, uint64_t* granted, wire::GrantStatus* why) {
  *granted = 0;
  if (device >= wire::kMaxDevices) return true;  // not one that the daemon can know
  uint64_t until = now_ns() + kDaemonPatienceNs;
  Locked locked(lock_);
  for (;;) {
    if (ready()) {
      flush_releases();
      auto reserve = wire::make_message<wire::Reserve>(++sequence_);
      reserve.device = place_of(device);
      reserve.kind = kind;
      reserve.bytes = bytes;
      reserve.force = force;
      wire::Grant grant;
      if (connection_.send(&reserve, sizeof reserve, true) && connection_.receive(&grant, sizeof grant, sequence_, activity) &&
          wire::check_message<wire::Grant>(&grant, sizeof grant)) {
        releases_on_the_way_.store(false, std::memory_order_relaxed);  // packets are read in order
        if (grant.status != wire::GrantStatus::granted) {
          if (why) *why = grant.status;
          return false;
        }
        held_[device][static_cast<int>(kind)] += grant.bytes;
        *granted = grant.bytes;
        return true;
      }
      lose_connection();
    }
    if (force == wire::Force::taken || slack_[device] >= bytes) {
      uint64_t from_slack = slack_[device] < bytes ? slack_[device] : bytes;
      slack_[device] -= from_slack;
      held_[device][static_cast<int>(kind)] += bytes;
      *granted = bytes;
      return true;
    }
    if (now_ns() >= until) return false;
    sleep_ns(20'000'000);
  }
}

void Client::release(uint32_t device, Kind kind, uint64_t bytes) {
  if (device >= wire::kMaxDevices || bytes == 0) return;
  Locked locked(lock_);
  uint64_t& held = held_[device][static_cast<int>(kind)];
  if (bytes > held) bytes = held;
  held -= bytes;
  if (!connection_.is_ours()) {
    slack_[device] += bytes;
    return;
  }
  // What NVML has found beyond our own count goes with the last context, too.
  uint64_t& unsent = unsent_[device][static_cast<int>(kind)];
  if (kind == Kind::overhead && held == 0) unsent = wire::kAllBytes;
  else if (unsent != wire::kAllBytes) unsent += bytes;
  flush_releases();
}

bool Client::reserve(const Allocation& what, wire::Force force, uint64_t* granted) {
  if (!what.shares_page || what.device >= wire::kMaxDevices) return reserve(what.device, what.kind, what.bytes, force, granted);
  Locked locked(small_lock_);
  uint64_t pages = page_footprint(small_bytes_[what.device] + what.bytes);
  if (pages > small_pages_[what.device]) {
    if (!reserve(what.device, what.kind, pages - small_pages_[what.device], force, granted)) return false;
    small_pages_[what.device] = pages;
  }
  small_bytes_[what.device] += what.bytes;
  *granted = what.bytes;
  return true;
}

void Client::release(const Allocation& what) {
  if (!what.shares_page || what.device >= wire::kMaxDevices) return release(what.device, what.kind, what.bytes);
  Locked locked(small_lock_);
  small_bytes_[what.device] -= what.bytes;
  uint64_t pages = page_footprint(small_bytes_[what.device]), idle = small_pages_[what.device] - pages;
  if (!idle) return;
  small_pages_[what.device] = pages;
  release(what.device, what.kind, idle);
}

void Client::settle_releases(uint32_t device) {
  uint64_t nothing;
  if (releases_on_the_way_.load(std::memory_order_relaxed)) reserve(device, Kind::linear, 0, wire::Force::taken, &nothing);
}

void Client::refresh(uint32_t device) {
  if (device >= wire::kMaxDevices) return;
  auto refresh = wire::make_message<wire::Refresh>();
  refresh.device = place_of(device);
  Locked locked(lock_);
  if (connection_.is_ours()) connection_.send(&refresh, sizeof refresh, false);
}

void Client::notice(wire::NoticeCode code, uint32_t device, uint64_t value, const char* text) {
  auto notice = wire::make_message<wire::Notice>();
  notice.code = code;
  notice.device = place_of(device);
  notice.value = value;
  ::strncpy(notice.text, text, sizeof notice.text - 1);
  Locked locked(lock_);
  if (connection_.is_ours()) connection_.send(&notice, sizeof notice, false);
}

void Client::tell_activity(bool wanted) {
  if (wanted == (told_activity_.load(std::memory_order_relaxed) != 0)) return;
  told_activity_.store(wanted, std::memory_order_relaxed);
  if (!wanted) return;
  auto active = wire::make_message<wire::Active>();
  Locked locked(lock_);
  if (connection_.is_ours()) connection_.send(&active, sizeof active, false);
}

void Client::set_places(const uint8_t* places, uint32_t count) {
  Locked locked(lock_);
  ::memcpy(places_, places, count);
  ordinals_ = count;
}

const wire::PageDevice* Client::device(uint32_t ordinal) const {
  const wire::DaemonPage* page = page_.load(std::memory_order_acquire);
  if (!page || ordinal >= wire::kMaxDevices) return nullptr;
  uint32_t place = place_of(ordinal);
  if (place >= page->device_count.load(std::memory_order_relaxed)) return nullptr;
  const wire::PageDevice* device = &page->devices[place];
  static constexpr wire::Uuid kNone{};
  return ::memcmp(&device->uuid, &kNone, sizeof kNone) == 0 ? nullptr : device;
}

// True: work of ours may be held, so look again soon.
bool Client::pace() {
  if (!(gate_bits() & wire::kGateHold) || !activity.page()) return false;
  if (activity.pace(*page(), introduction_.device_count, now_ns())) sleep_ns(Activity::kPaceNs);
  else activity.doze(100'000'000);
  return true;
}

// The helper: sees the daemon go and connects again, so that `berth ps` is complete without the program's help; and says when
// held work may go. It makes no driver call, ever, and sleeps when all is well.
void* helper_main(void* argument) {
  auto* client = static_cast<Client*>(argument);
  // Of this thread alone: by default a sleep of 20 us takes 70.
  sys(SYS_prctl, PR_SET_TIMERSLACK, 1);
  uint64_t looked = 0;
  bool pacing = false;
  for (;;) {
    bool paced = pacing;
    pacing = client->pace();
    if (paced && !pacing) client->activity.release();
    uint64_t now = now_ns();
    if (pacing && now - looked < 1'000'000) continue;
    looked = now;
    int fd;
    {
      Locked locked(client->lock_);
      fd = client->connection_.is_ours() ? client->connection_.fd() : -1;
    }
    if (fd >= 0) {
      // The timeout is for what poll can't tell: a descriptor that the program closed meanwhile, and a packet that a thread
      // which waited for its own reply took first, so that the gate has begun to hold without our knowing.
      pollfd watch{fd, POLLIN | POLLRDHUP, 0};
      __kernel_timespec patience{0, pacing ? 0 : 100'000'000};
      sys(SYS_ppoll, reinterpret_cast<long>(&watch), 1, reinterpret_cast<long>(&patience), 0, 8);
      if (!(watch.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))) {
        if (!(watch.revents & POLLIN)) continue;
        Locked locked(client->lock_);  // nobody waits for a reply now
        if (client->connection_.is_ours()) client->connection_.receive_unasked(client->activity);
        continue;
      }
    }
    bool connected, refused;
    {
      Locked locked(client->lock_);
      if (fd >= 0 && client->connection_.fd() == fd) client->lose_connection();
      connected = client->ready();
      refused = client->refused_;
    }
    if (refused) return nullptr;
    if (!connected) sleep_ns(1'000'000'000);
  }
}

void Client::start_helper() {
  // All signals blocked in the new thread: the program's handlers must never run on it.
  uint64_t all = ~0ull, before = 0;
  sys(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&all), reinterpret_cast<long>(&before), sizeof all);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, helper_main, this) == 0) ::pthread_detach(thread);
  sys(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&before), 0, sizeof before);
}

bool attach(const Introduction& introduction, void (*prepare)(Client&, const Introduction&)) {
  ForkPage* page = writable_fork_page();
  if (!page) return false;
  if (page->client.load(std::memory_order_acquire)) return true;
  Locked locked(page->attach_lock);
  if (page->client.load(std::memory_order_relaxed)) return true;
  void* memory = map_pages(sizeof(Client));
  if (!memory) return false;
  auto* client = static_cast<Client*>(memory);  // all zero is an empty client, but for the descriptor
  client->connection_ = Connection();
  client->introduction_ = introduction;
  client->ordinals_ = introduction.device_count;
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) client->places_[i] = static_cast<uint8_t>(i);
  bool connected;
  {
    Locked account(client->lock_);
    connected = client->reconnect();
  }
  if (!connected) {
    unmap_pages(memory, sizeof(Client));
    return false;
  }
  if (prepare) prepare(*client, introduction);
  page->client.store(client, std::memory_order_release);
  client->start_helper();
  return true;
}

}  // namespace berth::shim
