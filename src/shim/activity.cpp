#include "shim/activity.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/time_types.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "wire/daemon_page.h"

namespace berth::shim {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint64_t kStuckNs = 1'000'000;  // a kernel of a peer that has run for so long may be waiting for one of ours

const wire::ActivityPage* map_for_reading(int fd) {
  struct stat info;
  if (sys(SYS_newfstatat, fd, reinterpret_cast<long>(""), reinterpret_cast<long>(&info), AT_EMPTY_PATH) != 0 ||
      info.st_size < static_cast<long>(sizeof(wire::ActivityPage)))
    return nullptr;
  auto* page = static_cast<wire::ActivityPage*>(map_shared(fd, sizeof(wire::ActivityPage), PROT_READ));
  if (!page || (page->magic == wire::kMagic && page->layout == wire::kActivityLayout)) return page;
  unmap_pages(page, sizeof(wire::ActivityPage));
  return nullptr;
}

void unmap(const wire::ActivityPage* page) { unmap_pages(const_cast<wire::ActivityPage*>(page), sizeof(wire::ActivityPage)); }

uint32_t completed(const wire::ActivityPage& page, uint32_t device) {
  uint32_t sum = 0;
  wire::for_each_slot(page, device, [&](const wire::ActivitySlot& slot) { sum += slot.completed.load(kRelaxed); });
  return sum;
}

// Has the device begun a batch that it has not finished?
bool is_running(const wire::ActivityPage& page, uint32_t device) {
  bool any = false;
  wire::for_each_slot(page, device, [&](const wire::ActivitySlot& slot) {
    any |= slot.started.load(kRelaxed) != slot.completed.load(kRelaxed);
  });
  return any;
}

}  // namespace

void Activity::adopt(wire::ActivityPage* page) {
  wire::ActivityPage* old = page_.exchange(page, std::memory_order_acq_rel);
  for (auto* one : {old, page})
    for (uint32_t device = 0; one && device < wire::kMaxDevices; ++device) one->devices[device].go.store(1, std::memory_order_release);
}

void Activity::drop(Watched* watched) {
  unmap(watched->page);
  *watched = watched_[--count_];
}

void Activity::watch(const wire::Watch& message, int fd) {
  const wire::ActivityPage* page = message.relation == wire::Relation::none || fd < 0 ? nullptr : map_for_reading(fd);
  if (fd >= 0) sys(SYS_close, fd);
  Locked locked(lock_);
  for (uint32_t i = 0; i < count_; ++i)
    if (watched_[i].client_id == message.client_id) {
      drop(&watched_[i]);
      break;
    }
  if (!page) return;
  if (count_ == kMost) {  // the daemon's limit is lower
    unmap(page);
    return;
  }
  Watched& fresh = watched_[count_++];
  ::memset(&fresh, 0, sizeof fresh);
  fresh.page = page;
  fresh.client_id = message.client_id;
  fresh.relation = message.relation;
  ::memset(fresh.theirs, -1, sizeof fresh.theirs);
  for (uint32_t device = 0; device < wire::kMaxDevices; ++device) {
    int ours = message.devices[device];
    if (ours >= 0 && ours < static_cast<int>(wire::kMaxDevices)) fresh.theirs[ours] = static_cast<int8_t>(device);
  }
}

void Activity::forget_all() {
  Locked locked(lock_);
  while (count_) drop(&watched_[0]);
}

template <class Visit>
void Activity::for_each_watched(wire::Relation relation, uint32_t device, Visit visit) {
  Locked locked(lock_);
  for (uint32_t i = 0; i < count_; ++i)
    if (watched_[i].relation == relation && watched_[i].theirs[device] >= 0)
      visit(watched_[i], static_cast<uint32_t>(watched_[i].theirs[device]));
}

bool Activity::higher_is_busy(const wire::PageCard& rules, uint32_t device, uint64_t now) {
  uint32_t excess = rules.excess.load(kRelaxed);
  uint64_t window = rules.window_ns.load(kRelaxed), company = ~0ull;
  wire::ActivityDevice& shown = page()->devices[device];
  bool busy = false;
  for_each_watched(wire::Relation::higher, device, [&](Watched& one, uint32_t theirs) {
    Rhythm& rhythm = one.rhythm[device];
    uint64_t allowed = rhythm.company_ns(excess, window);
    if (allowed < company) company = allowed;
    if (!rhythm.comes_first(wire::is_busy(*one.page, theirs, now), allowed, now)) return;
    busy = true;
    shown.blocker.store(one.client_id, kRelaxed);
  });
  shown.company_ns.store(company == ~0ull ? 0 : company, kRelaxed);
  return busy;
}

bool Activity::a_peer_is_stuck(uint32_t device, uint64_t now) {
  bool stuck = false;
  for_each_watched(wire::Relation::peer, device, [&](Watched& one, uint32_t theirs) {
    uint32_t done = completed(*one.page, theirs);
    if (!is_running(*one.page, theirs) || done != one.done[device]) {
      one.done[device] = done;
      one.stuck_since[device] = now;
    } else {
      stuck |= now - one.stuck_since[device] > kStuckNs;
    }
  });
  return stuck;
}

// Held by higher work for too long: one batch goes, and the clock starts anew.
bool Activity::starved(const wire::PageCard& rules, uint32_t device, uint64_t now) {
  Device& memory = devices_[device];
  uint64_t limit = rules.starved_ns.load(kRelaxed);
  uint32_t done = completed(*page(), device);
  if (memory.passing && done == memory.completed) return true;
  if (memory.passing) {
    memory.passing = false;
    memory.held_since = now;
  }
  if (!limit || !memory.held_since || now - memory.held_since < limit) return false;
  memory.passing = true;
  memory.completed = done;
  return true;
}

bool Activity::may_go(const wire::PageCard& rules, uint32_t device, uint64_t now) {
  Device& memory = devices_[device];
  wire::ActivityDevice& shown = page()->devices[device];
  if (rules.may_run.load(kRelaxed) == wire::kRunHeld || rules.paused.load(kRelaxed)) {
    memory.held_since = 0;
    memory.passing = false;
    shown.held_by.store(2, kRelaxed);
    return !rules.paused.load(kRelaxed) && a_peer_is_stuck(device, now);
  }
  if (!higher_is_busy(rules, device, now)) {
    memory.held_since = 0;
    memory.passing = false;
    shown.held_by.store(0, kRelaxed);
    return true;
  }
  if (memory.held_since == 0) memory.held_since = now;
  shown.held_by.store(1, kRelaxed);
  return a_peer_is_stuck(device, now) || starved(rules, device, now);
}

bool Activity::pace(const wire::DaemonPage& daemon, uint32_t device_count, uint64_t now) {
  wire::ActivityPage* own = page();
  if (!own) return false;
  bool busy = callers_.load(kRelaxed) != 0;
  for (uint32_t device = 0; device < device_count && device < wire::kMaxDevices; ++device) {
    Device& memory = devices_[device];
    wire::ActivityDevice& shown = own->devices[device];
    bool outstanding = wire::is_busy(*own, device, now);
    bool go = may_go(daemon.cards[device], device, now);
    uint64_t passed = memory.paced && now - memory.paced < 100'000'000 ? now - memory.paced : 0;
    if (outstanding && !shown.go.load(kRelaxed)) shown.held_ns.fetch_add(passed, kRelaxed);
    memory.paced = now;
    shown.go.store(go, std::memory_order_release);
    busy |= outstanding;
  }
  return busy;
}

void Activity::release() {
  wire::ActivityPage* own = page();
  for (uint32_t device = 0; own && device < wire::kMaxDevices; ++device) {
    own->devices[device].held_by.store(0, kRelaxed);
    own->devices[device].company_ns.store(0, kRelaxed);
    own->devices[device].go.store(1, std::memory_order_release);
    devices_[device] = Device{};
  }
}

void Activity::doze(uint64_t ns) {
  wire::ActivityPage* own = page();
  dozing_.store(1, std::memory_order_seq_cst);
  // A submission that came just before must not find us asleep with its work held.
  uint64_t now = now_ns();
  bool busy = callers_.load(std::memory_order_seq_cst) != 0;
  for (uint32_t device = 0; own && device < wire::kMaxDevices && !busy; ++device) busy = wire::is_busy(*own, device, now);
  if (!busy) {
    __kernel_timespec patience{0, static_cast<long>(ns)};
    sys(SYS_futex, reinterpret_cast<long>(&dozing_), FUTEX_WAIT_PRIVATE, 1, reinterpret_cast<long>(&patience));
  }
  dozing_.store(0, std::memory_order_seq_cst);
}

void Activity::wake_slowly() {
  if (dozing_.exchange(0, std::memory_order_seq_cst)) sys(SYS_futex, reinterpret_cast<long>(&dozing_), FUTEX_WAKE_PRIVATE, 1);
}

void Activity::wait_in_caller(uint32_t device) {
  wire::ActivityPage* own = page();
  if (!own || device >= wire::kMaxDevices) return;
  callers_.fetch_add(1, std::memory_order_seq_cst);
  wake();
  do sleep_ns(kPaceNs);  // at least once: the helper may not have looked yet
  while (page() == own && own->devices[device].go.load(std::memory_order_acquire) == 0);
  callers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace berth::shim
