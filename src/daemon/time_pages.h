// The page that one client writes about its work (wire/activity_page.h): made here, and read here with the thought that
// whoever writes it may mean harm. Owned by the event loop.
#pragma once
#include <array>
#include <optional>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/scheduler.h"
#include "wire/activity_page.h"

namespace berth::daemon {

class ActivityPage {
 public:
  // Mapped for reading, of a fixed size from the start: whatever a client does to it, reading never faults.
  static Result<ActivityPage> create();
  ActivityPage() = default;
  ActivityPage(ActivityPage&& other) noexcept { *this = std::move(other); }
  ActivityPage& operator=(ActivityPage&& other) noexcept;
  ~ActivityPage();

  explicit operator bool() const { return page_ != nullptr; }
  const wire::ActivityPage& operator*() const { return *page_; }

  // The descriptor for the client that writes the page; gone once it is sealed.
  int writer() const { return writer_.get(); }

  // The client has mapped it: nobody can map it for writing any more, and it may be shown to others.
  void seal();
  bool is_sealed() const { return static_cast<bool>(reader_); }
  int reader() const { return reader_.get(); }

 private:
  const wire::ActivityPage* page_ = nullptr;
  UniqueFd writer_, reader_;
};

// What a client showed on one of its devices since the last look.
struct Look {
  policy::Sighting sighting;
  bool goes = true;        // its work may go now
  bool by_higher = false;  // a higher client is busy: it does not go, or goes all the same as an exception
  uint64_t blocker = 0;    // client_id of that one
  policy::Time waited{0};  // with work outstanding that was not let go
  policy::Time company{0};  // wire::ActivityDevice::company_ns, a second at most
};

// Reads one client's page again and again. Figures that can't be are no figures: implausible() then says why, for good,
// and the client shows nothing any more.
class PageReader {
 public:
  // `ordinal` is the client's. All its ordinals are to be read at the same times.
  Look read(const wire::ActivityPage& page, uint32_t ordinal, policy::Time now);
  const std::string& implausible() const { return implausible_; }

 private:
  struct Slot {
    uint32_t completed = 0, device = ~0u;
  };
  struct Device {
    bool known = false;
    uint64_t service = 0, submissions = 0, held = 0;
    policy::Time read{0};
  };
  void read_slots(const wire::ActivityPage& page, uint32_t ordinal, policy::Sighting* sighting);
  uint64_t grown(uint64_t now, uint64_t& before, uint64_t most, const char* what);

  std::array<Slot, wire::kActivitySlots> slots_;
  std::array<Device, wire::kMaxDevices> devices_;
  std::string implausible_;
};

// What a row of looks at a client on one device tells that people should know.
struct Progress {
  policy::Time progressed{
      policy::kNever};  // last time that it completed anything, had nothing to complete, or was held
  policy::Time held_since{policy::kNever};  // by higher clients; kNever: it isn't
  policy::Time told{policy::kNever};        // at most once a minute
  bool stuck = false;                       // has had work that may go for kStuck and none has become complete
};
enum class Concern { none, no_progress, starvation_pass };
inline constexpr policy::Time kStuck = std::chrono::seconds(10);
Concern note(Progress& progress, const Look& look, policy::Time now, policy::Time starvation);

}  // namespace berth::daemon
