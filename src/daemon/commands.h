// Requests of commands: docs/wire-protocol.md, "Commands". One at a time on a connection, answered in order.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "daemon/connection.h"
#include "daemon/jobs.h"

namespace berth::daemon {

struct ControlSession {
  std::shared_ptr<Connection> connection;
  ProcessId process;             // of the sender; pid 0 if it is out of our sight
  std::vector<ProcessId> chain;  // its parents, when it connected
  std::vector<std::string> cgroups;
  bool busy = false;  // a request is being answered
  std::deque<std::string> pending;
  JobId queued = 0;      // the admit that waits
  std::set<JobId> jobs;  // admitted or started here
  std::optional<uint64_t> follower;

  uid_t uid() const { return connection->peer().uid; }
};
using SessionPtr = std::shared_ptr<ControlSession>;

class Commands {
 public:
  explicit Commands(Daemon& daemon) : daemon_(daemon) {}

  // A connection whose first packet is a control request.
  void open(const std::shared_ptr<Connection>& connection, std::string_view packet);

 private:
  void packet(const SessionPtr& session, std::string_view packet);
  void next(const SessionPtr& session);
  void handle(const SessionPtr& session, const std::string& text);
  void closed(const SessionPtr& session);
  void reply(const SessionPtr& session, const Json& body);
  void fail(const SessionPtr& session, const Error& error);
  Tell teller(const SessionPtr& session) const;

  void admit(const SessionPtr& session, const Json& request);
  void register_container(const SessionPtr& session, const Json& request);
  void order(const SessionPtr& session, const Json& request, AdmitOrder order);
  void start(const SessionPtr& session, const Json& request);
  void finish(const SessionPtr& session, const Json& request);
  void ps(const SessionPtr& session, const Json& request);
  void gpus(const SessionPtr& session, const Json& request);
  void set(const SessionPtr& session, const Json& request);
  void pause(const SessionPtr& session, const Json& request);
  void resume(const SessionPtr& session, const Json& request);
  void change_state(const SessionPtr& session, JobId job, policy::JobState state);
  void kill(const SessionPtr& session, const Json& request);
  void events(const SessionPtr& session, const Json& request);
  void status(const SessionPtr& session, const Json& request);
  void stop(const SessionPtr& session, const Json& request);

  Error with_other_daemons(Error error) const;
  Json visible_to(const policy::Job& job, const std::optional<std::string>& list) const;

  // The job that the sender may act on; `inside` tells whether the sender is one of its processes.
  Result<JobId> own_job(const SessionPtr& session, const Json& request, bool* inside) const;
  std::optional<JobId> inside_of(const SessionPtr& session) const;

  Daemon& daemon_;
  std::set<SessionPtr> sessions_;
  std::set<std::tuple<uid_t, policy::DeviceIndex, std::string>> told_of_holders_;  // each user once
};

}  // namespace berth::daemon
