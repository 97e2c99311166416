#include "daemon/time_watch.h"

#include <algorithm>
#include <cstring>

namespace berth::daemon {
namespace {

// Where the ordinals of `theirs` are among those of `mine`; false if the two don't meet.
bool meet(const Watchable& mine, const Watchable& theirs, int8_t (&places)[wire::kMaxDevices]) {
  bool any = false;
  std::memset(places, -1, sizeof places);
  for (size_t i = 0; i < theirs.devices.size(); ++i) {
    auto place = std::find(mine.devices.begin(), mine.devices.end(), theirs.devices[i]);
    if (theirs.devices[i] < 0 || place == mine.devices.end()) continue;
    places[i] = static_cast<int8_t>(place - mine.devices.begin());
    any = true;
  }
  return any;
}

wire::Relation relation(const Watchable& mine, const Watchable& theirs) {
  if (!mine.looks || !theirs.shown || mine.client == theirs.client) return wire::Relation::none;
  if (mine.job == theirs.job) return wire::Relation::peer;
  return theirs.priority > mine.priority ? wire::Relation::higher : wire::Relation::none;
}

}  // namespace

void WatchLists::update(const std::vector<Watchable>& clients, const TellWatch& tell) {
  std::erase_if(told_, [&](const auto& entry) {
    return std::none_of(clients.begin(), clients.end(),
                        [&](const auto& client) { return client.client == entry.first; });
  });
  for (const Watchable& mine : clients) {
    std::map<policy::ClientId, std::pair<Told, wire::Watch>> wanted;
    for (wire::Relation which : {wire::Relation::higher, wire::Relation::peer})
      for (const Watchable& theirs : clients) {
        if (wanted.size() >= kMostWatched) break;
        auto message = wire::make_message<wire::Watch>();
        if (relation(mine, theirs) != which || !meet(mine, theirs, message.devices)) continue;
        message.client_id = theirs.client;
        message.relation = which;
        wanted.try_emplace(theirs.client, Told{which, theirs.page}, message);
      }
    auto& told = told_[mine.client];
    std::erase_if(told, [&](const auto& entry) {
      if (wanted.contains(entry.first)) return false;
      auto message = wire::make_message<wire::Watch>();
      message.client_id = entry.first;
      std::memset(message.devices, -1, sizeof message.devices);
      tell(mine.client, message);
      return true;
    });
    for (const auto& [client, entry] : wanted)
      if (std::exchange(told[client], entry.first) != entry.first) tell(mine.client, entry.second);
  }
}

}  // namespace berth::daemon
