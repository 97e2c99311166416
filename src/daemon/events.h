// What people should know afterwards: the last events, kept in memory and in the store, and told to those who follow.
#pragma once
#include <deque>
#include <functional>
#include <map>

#include "daemon/store.h"
#include "daemon/worker.h"

namespace berth::daemon {

struct Event {
  std::string kind;       // job_admitted, over_quota ...: docs/json.md lists them
  std::string job, user;  // "" = of no job
  std::string message;    // one clear line
  Json fields = Json::object();
};

class Events {
 public:
  using Follower = std::function<void(const Json&)>;
  Events(Store& store, Worker& disk, size_t keep) : store_(store), disk_(disk), keep_(keep) {}

  // Before the loop runs: goes on where the stored events end.
  void restore(std::vector<Json> stored);

  void add(const Event& event);

  // From the wall time on ("" = all).
  Json since(const std::string& at) const;

  // Until unfollow. The follower must not call back.
  uint64_t follow(Follower follower);
  void unfollow(uint64_t follower) { followers_.erase(follower); }

 private:
  Store& store_;
  Worker& disk_;
  const size_t keep_;
  std::deque<Json> last_;
  uint64_t next_id_ = 1, next_follower_ = 1;
  size_t unwritten_ = 0;
  bool write_failed_ = false;
  std::map<uint64_t, Follower> followers_;
};

}  // namespace berth::daemon
