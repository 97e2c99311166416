// GPU time: puts into practice what policy/scheduler.h decides. Reads the clients' activity pages, ticks, writes gates
// and turns into the clients' pages, and tells clients whose pages to watch. Owned by the event loop.
//
// States:  asleep   nobody works: no timer; kGateTell is set, the first submission wakes us
//          awake    a tick each millisecond (while there is something to decide) or each 20 ms
//          resting  kGateTell has just been set: one more tick, since somebody may have submitted right before
// asleep -> awake by `active`; awake -> resting after a second without work; resting -> asleep, or awake if there is
// work.
#pragma once
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>

#include "daemon/connection.h"
#include "daemon/time_pages.h"
#include "daemon/time_watch.h"
#include "policy/schedule_gate.h"
#include "wire/daemon_page.h"

namespace berth::daemon {

class Daemon;

// What people see of a job on a device.
struct TimeView {
  std::optional<double> second_ratio, minute_ratio;  // none: nothing is tracked, the job is alone
  double waited_seconds = 0;     // held by work of higher priority or by the daemon, as its clients say
  double throttled_seconds = 0;  // held by the daemon
  bool may_run = true;           // as far as the daemon is concerned
  std::string held_by;           // a job's name, "turn", "max_share" or "paused": the last
  std::optional<double> window_seconds, company_seconds, waiting_bound_seconds;
};

class TimeScheduler {
 public:
  explicit TimeScheduler(Daemon& daemon);

  struct Arrival {
    policy::ClientId client = 0;
    policy::JobId job = 0;
    std::shared_ptr<Connection> connection;
    wire::DaemonPage* page = nullptr;  // until departed()
    std::vector<int> devices;          // the client's ordinals -> DeviceIndex, or -1
    bool publishes = false;            // it wants an activity page
  };
  // A client (no viewer) has attached, perhaps again. Returns the descriptor of its activity page, or -1; it is the
  // scheduler's, and good until the client has been heard of again.
  int arrived(Arrival arrival);
  void mapped(policy::ClientId client);
  void active(policy::ClientId client);
  void departed(policy::ClientId client);

  // Jobs have come, gone or been changed.
  void changed() { stale_ = true; }

  // To be called when the daemon settles: puts all that has changed into effect, at once.
  void settle();

  TimeView view(policy::JobId job, policy::DeviceIndex device) const;
  bool has_timer() const { return state_ != State::asleep; }

 private:
  struct Client : Arrival {
    ActivityPage activity;
    uint64_t page_number = 0;
    PageReader reader;
    std::vector<Progress> progress;  // by ordinal
    bool distrusted = false;
  };
  struct JobMemory {  // of a job on a device
    policy::Time waited{0};
    policy::JobId blocker = 0;  // of higher priority, if that is what held it last; else 0
    policy::Gate gate;
    policy::Time company{0};  // that higher ones allow it, as its programs work it out
  };
  struct DeviceState {
    policy::DeviceTurns turns;
    std::map<policy::JobId, JobMemory> jobs;
  };
  enum class State { asleep, awake, resting };

  bool is_on(const Client& client, size_t ordinal) const;
  void update_contenders();
  void update_gates(policy::Time now);
  void update_watch_lists();
  policy::Time longest_graph(const Client& client) const;  // that is launched whole; 0: all are
  bool write_page(Client& client);                         // true: its gate has begun to hold
  bool has_peers(const Client& client) const;
  void tick();
  using Sightings = std::map<policy::JobId, policy::Sighting>;
  std::map<policy::DeviceIndex, Sightings> look(policy::Time now);
  void judge(Client& client, size_t ordinal, const Look& look, policy::Time now);
  uint32_t excess_above(const DeviceState& device, policy::JobId job) const;
  void plan(policy::Time now);
  void set_timer(policy::Time delay);
  void tell(const Client& client, size_t ordinal, const char* kind, const std::string& text);

  Daemon& daemon_;
  policy::TurnSettings settings_;
  std::map<policy::ClientId, Client> clients_;
  std::map<policy::DeviceIndex, DeviceState> devices_;
  WatchLists watch_lists_;
  asio::steady_timer timer_;
  State state_ = State::asleep;
  policy::Time lively_{policy::kNever};  // somebody worked, or said so
  uint64_t next_page_ = 1;
  bool stale_ = false, lists_stale_ = false;
};

}  // namespace berth::daemon
