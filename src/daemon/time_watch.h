// Which clients look at which others' activity pages: lower ones at higher ones, and clients of one job at each other,
// as far as they meet on a device and anything of theirs is ever held. Says what has changed since the last time.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "policy/state.h"
#include "wire/guest_protocol.h"

namespace berth::daemon {

inline constexpr size_t kMostWatched = 60;  // by one client, higher ones first; guests have room for a few more

struct Watchable {
  policy::ClientId client = 0;
  policy::JobId job = 0;
  policy::Priority priority = policy::Priority::normal;
  std::vector<int> devices;  // the client's ordinals -> DeviceIndex, or -1
  bool looks = false;        // its work may be held
  bool shown = false;        // its page may be shown
  uint64_t page = 0;         // another page of the same client has another number
};

class WatchLists {
 public:
  // `tell` gets what has to be sent: to whom, and about whom (with Relation::none: only the id).
  using TellWatch = std::function<void(policy::ClientId to, const wire::Watch& message)>;

  // All clients there are.
  void update(const std::vector<Watchable>& clients, const TellWatch& tell);

  // The client has a new connection and knows nothing.
  void forget(policy::ClientId watcher) { told_.erase(watcher); }

 private:
  struct Told {
    wire::Relation relation = wire::Relation::none;
    uint64_t page = 0;
    auto operator<=>(const Told&) const = default;
  };
  std::map<policy::ClientId, std::map<policy::ClientId, Told>> told_;  // by watcher
};

}  // namespace berth::daemon
