#include "daemon/time_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "daemon/page_memory.h"

namespace berth::daemon {
namespace {

constexpr auto kPlainLoad = std::memory_order_relaxed;
// No program has more in a queue, or completes more between two looks.
constexpr uint32_t kMostBatches = 1u << 20;
// A device that completes a batch before the client has counted it as submitted shows one too many for a moment.
constexpr uint32_t kAhead = 64;
constexpr uint64_t kMostService = 600'000'000'000, kMostSubmissions = 1ull << 40;
constexpr policy::Time kToldAgain = std::chrono::minutes(1);
constexpr policy::Time kLongestBatch = std::chrono::seconds(10);

}  // namespace

Result<ActivityPage> ActivityPage::create() {
  auto memory = make_page_memory("berth-activity", sizeof(wire::ActivityPage));
  if (!memory) return memory.error();
  auto* page = ::new (memory->at) wire::ActivityPage;
  page->magic = wire::kMagic;
  page->layout = wire::kActivityLayout;
  page->size = sizeof(wire::ActivityPage);
  for (wire::ActivityDevice& device : page->devices) device.go.store(1, std::memory_order_relaxed);
  ActivityPage made;
  made.page_ = page;
  made.writer_ = std::move(memory->writer);
  if (::mprotect(memory->at, sizeof(wire::ActivityPage), PROT_READ) != 0)
    return Error{"internal", std::string("cannot protect a client's activity page: ") + std::strerror(errno)};
  return made;
}

void ActivityPage::seal() {
  if (is_sealed() || !writer_) return;
  keep_writers_out(writer_);
  reader_ = open_reader(writer_);
  writer_.reset();
}

ActivityPage& ActivityPage::operator=(ActivityPage&& other) noexcept {
  std::swap(page_, other.page_);
  writer_ = std::move(other.writer_);
  reader_ = std::move(other.reader_);
  return *this;
}

ActivityPage::~ActivityPage() {
  if (page_) ::munmap(const_cast<wire::ActivityPage*>(page_), sizeof(wire::ActivityPage));
}

// A counter that only grows, and by no more than can be.
uint64_t PageReader::grown(uint64_t now, uint64_t& before, uint64_t most, const char* what) {
  uint64_t by = now - std::exchange(before, now);
  if (by <= most) return by;
  implausible_ = std::string("its ") + what + (by > ~0ull / 2 ? " went back" : " jumped");
  return 0;
}

void PageReader::read_slots(const wire::ActivityPage& page, uint32_t ordinal, policy::Sighting* sighting) {
  uint32_t count = page.slot_count.load(std::memory_order_acquire);
  if (count > wire::kActivitySlots) {
    implausible_ = "it has " + std::to_string(count) + " streams";
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const wire::ActivitySlot& slot = page.slots[i];
    if (slot.device.load(kPlainLoad) != ordinal) {
      if (slots_[i].device == ordinal) slots_[i].device = ~0u;
      continue;
    }
    uint32_t completed = slot.completed.load(std::memory_order_acquire), submitted = slot.submitted.load(kPlainLoad);
    if (slots_[i].device != ordinal) slots_[i] = {completed, ordinal};
    uint32_t outstanding = submitted - completed, done = completed - std::exchange(slots_[i].completed, completed);
    if (outstanding > ~kAhead) outstanding = 0;
    if (done > ~kAhead) done = 0;
    if (outstanding > kMostBatches || done > kMostBatches) {
      implausible_ = "its stream " + std::to_string(i) + " has " + std::to_string(outstanding) +
                     " batches outstanding and " + std::to_string(done) + " just completed";
      return;
    }
    sighting->outstanding += outstanding;
    sighting->streams += outstanding > 0;
    sighting->completed += done;
  }
}

Look PageReader::read(const wire::ActivityPage& page, uint32_t ordinal, policy::Time now) {
  if (!implausible_.empty()) return {};
  Look look;
  read_slots(page, ordinal, &look.sighting);
  const wire::ActivityDevice& shown = page.devices[ordinal];
  uint64_t service = shown.service_ns.load(kPlainLoad), submissions = shown.submissions.load(kPlainLoad),
           held = shown.held_ns.load(kPlainLoad);
  Device& before = devices_[ordinal];
  if (!std::exchange(before.known, true)) before = {true, service, submissions, held, now};
  policy::Time elapsed = now - std::exchange(before.read, now);
  look.sighting.service = policy::Time(static_cast<int64_t>(grown(service, before.service, kMostService, "service")));
  look.sighting.submitted = grown(submissions, before.submissions, kMostSubmissions, "count of submissions");
  uint64_t waited = grown(held, before.held, ~0ull / 2, "waiting time");
  look.waited = std::min(elapsed, policy::Time(static_cast<int64_t>(waited)));
  look.company = policy::Time(std::min<uint64_t>(shown.company_ns.load(std::memory_order_relaxed), 1'000'000'000));
  look.sighting.batch = policy::Time(
      static_cast<int64_t>(std::min(shown.batch_ns.load(kPlainLoad), static_cast<uint64_t>(kLongestBatch.count()))));
  look.sighting.busy = wire::is_busy(page, ordinal, static_cast<uint64_t>(now.count()));
  look.goes = shown.go.load(kPlainLoad) != 0;
  look.by_higher = shown.held_by.load(kPlainLoad) == 1;
  look.blocker = shown.blocker.load(kPlainLoad);
  return implausible_.empty() ? look : Look();
}

Concern note(Progress& progress, const Look& look, policy::Time now, policy::Time starvation) {
  auto concern = [&](Concern which) {
    if (now - progress.told < kToldAgain) return Concern::none;
    progress.told = now;
    return which;
  };
  const policy::Sighting& shown = look.sighting;
  if (progress.progressed == policy::kNever || shown.completed > 0 || shown.outstanding == 0 || !look.goes) {
    progress.progressed = now;
    progress.stuck = false;
  } else if (!progress.stuck && now - progress.progressed >= kStuck) {
    progress.stuck = true;
    return concern(Concern::no_progress);
  }
  if (!look.by_higher) {
    progress.held_since = policy::kNever;
  } else if (progress.held_since == policy::kNever) {
    progress.held_since = now;
  } else if (look.goes && now - progress.held_since >= starvation) {
    progress.held_since = now;
    return concern(Concern::starvation_pass);
  }
  return Concern::none;
}

}  // namespace berth::daemon
