// Jobs from admission to their end: the queue, the processes that belong to them, what the store keeps of them.
#pragma once
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/process.h"
#include "base/result.h"
#include "daemon/store.h"
#include "policy/admission.h"

namespace berth::daemon {

class Daemon;
using policy::JobId;

using Tell = std::function<void(const Json&)>;  // sends an event to a command's connection

// The daemon's side of a policy::Job.
struct JobInfo {
  std::optional<ProcessId> runner;  // `berth run`: parent of the job's orphans while it lives
  std::optional<ProcessId> root;    // COMMAND
  std::string cgroup;               // of a registered container instead
  bool populated = false;           // the container has had a process
  std::set<ProcessId> members;      // as last seen; watched one by one once nobody runs the job for us
  std::set<ProcessId> watched;      // of these
  bool orphaned = false;            // there is no runner any more that tells us the end
  std::string created_at, started_at, ended_at;
  std::optional<int> exit_code;
  Tell tell;  // the runner's connection; empty if it has none
};

struct AdmitOrder {
  policy::Request request;
  policy::Limits limits;
  std::optional<ProcessId> runner;
  std::string cgroup;
  double wait_seconds = 0;  // 0: don't, below 0: for ever
  Tell tell;
  std::function<void(Result<JobId>)> reply;  // once, perhaps before admit returns
};

class Jobs {
 public:
  explicit Jobs(Daemon& daemon) : daemon_(daemon) {}

  // Before the loop runs: jobs of the store whose processes live.
  Status restore();

  void admit(AdmitOrder order, JobId* queued);

  // The connection that waits for `job` is gone, or the job was killed in the queue.
  void leave_queue(JobId job, const std::string& why);

  // The runner's connection is gone. A job that has not started ends; any other goes on.
  void runner_disconnected(JobId job);

  // Also again, after a reconnect of the same runner.
  Status start(JobId job, ProcessId sender, pid_t pid, Tell tell);
  Status finish(JobId job, ProcessId sender, int exit_code, std::function<void()> done);

  // The user's default job (system service), made if there is none.
  Result<JobId> default_job(uid_t uid);

  // The living job that a process belongs to by any of its parents (nearest first), or by its cgroup.
  std::optional<JobId> job_of(const std::vector<ProcessId>& chain, const std::vector<std::string>& cgroups) const;

  // Sends a signal to all processes of the job, but not to the runner. `done` gets how many.
  void signal(JobId job, int number, std::function<void(size_t)> done);

  // Ends the job of a container that has not had a process yet.
  void give_up_container(JobId job);

  // Saves what `set` has changed; an error leaves the store as it was.
  void save(JobId job, std::function<void(Status)> done);

  void admit_waiting();
  void tick();              // every now and then while jobs live: looks at their processes, every 5 s at most
  void end_default_jobs();  // those without a client
  bool any_living() const;
  bool any_waiting() const;

  const JobInfo& info(JobId job) const { return infos_.at(job); }
  void tell(JobId job, const Json& event) const;

 private:
  void added(JobId job, AdmitOrder order);
  void tell_positions();
  void watch(JobId job);
  std::vector<ProcessId> others(JobId job) const;
  void find_living(JobId job, std::function<void(std::vector<ProcessId>)> then);
  void check_members(JobId job);
  void members_found(JobId job, std::vector<ProcessId> living);
  void end(JobId job, const std::string& why);
  void forget_old();
  std::vector<ProcessId> seeds(JobId job) const;
  bool lives(JobId job) const;
  bool restore_job(const Json& record);

  struct Waiting {
    AdmitOrder order;
    std::unique_ptr<asio::steady_timer> timer;
    size_t told_position = 0;
  };
  Daemon& daemon_;
  std::map<JobId, JobInfo> infos_;
  std::map<JobId, Waiting> waiting_;
  std::map<JobId, bool> checking_;  // a search for its processes runs; true: another is wanted
  policy::Time ticked_{0};
};

}  // namespace berth::daemon
