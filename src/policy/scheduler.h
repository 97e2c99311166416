// Who may run on one device: turns among jobs of equal priority, shares that are never exceeded, pauses. Plain
// functions over plain state; the clock is an argument, nothing is read or written here. One DeviceTurns a device.
//
// The caller ticks (every kFastTick while decisions are to be made, see next_tick) with what the jobs' clients showed;
// each tick charges the jobs for the time since the last one and then decides who may run until the next.
//
// Virtual time of a job = service / weight (start-time fair queueing); the job with the least has the next turn. A turn
// is exclusive while its holder has a full queue, because the hardware loses 8 to 9 % when it slices between programs
// (measured on an H200) and nothing when one runs alone. So for jobs that all want more than they get, over any time in
// which the same jobs want to run: |service - weight's part| <= one turn + the work in flight when a turn ends.
//
// Charging. What is charged is the device's time, not what clients report: the holder of an exclusive turn pays the
// wall's time while it has work outstanding, so it gains nothing by lying. Where several had work that could run, the
// hardware gave each the same part, and so does the charge. Reports count only where they can do little harm: the rest
// of the batches in flight when a turn ends (between 0 and the time until they were seen complete), and bursts of jobs
// without a backlog (which may owe at most one quantum).
//
// Levels: jobs of one priority take turns among themselves. That higher ones come first is seen to by the guests
// themselves, without the daemon (wire/activity_page.h); here their work only means that lower ones are not charged.
#pragma once
#include <map>

#include "policy/service_history.h"
#include "policy/state.h"

namespace berth::policy {

inline constexpr Time kNever = std::chrono::hours(-24 * 365);  // long before any time on the clock
inline constexpr Time kFastTick = std::chrono::milliseconds(1);
inline constexpr Time kSlowTick = std::chrono::milliseconds(20);
inline constexpr Time kStaysFast = std::chrono::milliseconds(100);  // after the last contention
inline constexpr Time kStaysAwake = std::chrono::seconds(1);        // after the last work of anybody

struct TurnSettings {
  Time quantum = std::chrono::milliseconds(20);    // the mean length of a turn
  Time cycle = std::chrono::milliseconds(100);     // turns get shorter so that all have had one within this,
  Time least_turn = std::chrono::milliseconds(4);  // but no turn is shorter than this
  Time preempt = std::chrono::milliseconds(2);     // age of a turn that a job without a backlog may interrupt
  Time starvation = std::chrono::seconds(10);      // after so long a wait a job has the next turn whatever its weight
};

// What is asked for a job.
struct TimeShare {
  Priority priority = Priority::normal;
  uint32_t weight = 100;            // 1 to 10000
  std::optional<double> max_share;  // above 0, at most 1: of the device's time in every second
  bool paused = false;
  auto operator<=>(const TimeShare&) const = default;
};

// What the clients of a job showed on the device, summed up; counts since the last tick. The caller has made sure that
// they are no nonsense; that they are true nobody can.
struct Sighting {
  bool busy = false;         // work outstanding or being gathered
  uint32_t outstanding = 0;  // batches, held ones too; 2 and more are a backlog
  uint32_t streams = 0;      // that have batches outstanding: so many may be in flight
  uint64_t completed = 0;    // batches
  uint64_t submitted = 0;    // submissions
  Time service{0};           // learned lengths of the batches completed
  Time batch{0};             // learned length of the longest batch of late
};

enum class Held : uint8_t { no, turn, max_share, paused };
const char* to_string(Held held);  // "", "turn", ...

// A job on the device.
struct Contender {
  TimeShare share;
  Held held = Held::no;  // the decision, until the next tick

  bool wants = false, backlog = false;  // at the last tick
  bool stands = false;                  // wants, and neither paused nor throttled
  bool present = false;                 // since the last tick its work was on the device, as far as anybody can tell
  Time last_active{kNever};
  Time waits_since{0};   // while it stands and may not run
  double vtime = 0;      // seconds of service / weight
  Time since_waking{0};  // charged since it last stood up: less than a quantum = it gets in quickly
  Time in_turn{0};       // charged in this turn

  // The present run (from the moment it may run until its last batch is complete): for the bill at its end.
  Time run_charged{0}, run_reported{0};
  Time owed{0};           // time with work outstanding that no report has covered yet
  uint64_t draining = 0;  // batches that were in flight when it had to stop and are not complete
  Time stopped_at{0}, drain_charged{0};

  Time tokens{0};  // of max_share: a bucket of one pulse; below zero after long kernels
  bool throttled = false;

  ServiceHistory history;
  Time charged{0};                 // in all
  std::array<Time, 4> held_for{};  // by Held: wanted to run and was not let
  Held last_held = Held::no;       // the last that was not `no`
};

struct DeviceTurns {
  std::map<JobId, Contender> contenders;
  std::array<JobId, 3> holders{};  // by priority; 0 = nobody
  std::array<Time, 3> turn_began{};
  std::array<double, 3> floor{};  // least virtual time of those who stand; never falls
  Time ticked{0};                 // the last tick
  bool asleep = true;             // no tick was wanted since
  Time contended{kNever};         // last time that there was something to decide
};

// A job that is new to the device, or one whose wishes have changed; what it has had stays in proportion.
void set_contender(DeviceTurns& turns, JobId job, const TimeShare& share);
void remove_contender(DeviceTurns& turns, JobId job);

// `sightings` of all contenders that showed anything; the decisions are then in Contender::held. Nothing is charged for
// time in which next_tick() wanted no tick.
void tick(DeviceTurns& turns, const std::map<JobId, Sighting>& sightings, Time now, const TurnSettings& settings);

// How long until the next tick is due: kFastTick, kSlowTick, or nothing: everybody has been idle for kStaysAwake, and a
// client that begins to work must tell.
std::optional<Time> next_tick(const DeviceTurns& turns, Time now);

// The turn of a job among those that stand, and the longest that it then waits for one, the work in flight of the
// others not counted: max(cycle, n x least_turn, its turn x all weights / its own), but no more than `starvation` and a
// cycle.
Time turn_length(const DeviceTurns& turns, JobId job, const TurnSettings& settings);
Time waiting_bound(const DeviceTurns& turns, JobId job, const TurnSettings& settings);

}  // namespace berth::policy
