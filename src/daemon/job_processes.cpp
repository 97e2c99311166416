// The processes of jobs: who belongs, who still lives, and therefore when a job has ended.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/records.h"

namespace berth::daemon {
namespace {

constexpr double kContainerPatience = 60;  // seconds until a registered container must have a process

// All processes of a cgroup and the groups below it.
void collect_cgroup(const std::string& folder, int depth, std::vector<ProcessId>* found) {
  std::ifstream processes(folder + "/cgroup.procs");
  for (pid_t pid; processes >> pid;)
    if (auto stat = read_process(pid); stat && !stat->ended()) found->push_back(stat->id);
  if (depth == 0) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) collect_cgroup(entry.path(), depth - 1, found);
}

// How to find all processes of one job.
struct Search {
  std::vector<ProcessId> roots, others;  // `others` and what is below them belong to other jobs
  std::optional<ProcessId> runner;
  std::string cgroup;
};

// Everything below the roots, but not the runner, and not this daemon, which `berth run` may have started.
std::vector<ProcessId> living_processes(const Search& search) {
  std::vector<ProcessId> living = descendants(search.roots);
  if (!search.cgroup.empty()) collect_cgroup("/sys/fs/cgroup" + search.cgroup, 8, &living);
  if (living.empty()) return living;
  std::set<ProcessId> foreign;
  if (!search.others.empty())
    for (ProcessId process : descendants(search.others)) foreign.insert(process);
  std::erase_if(living, [&](ProcessId process) {
    return process == search.runner || process.pid == ::getpid() || foreign.contains(process);
  });
  return living;
}

}  // namespace

Status Jobs::restore() {
  auto records = daemon_.store.load_jobs();
  if (!records) return records.error();
  auto clients = daemon_.store.load_clients();
  if (!clients) return clients.error();
  for (const Json& record : *records)
    if (!restore_job(record)) daemon_.store.remove_job(record.value("id", uint64_t{0})).ok();

  policy::Time now = steady_now();
  std::vector<policy::ClientId> known;
  for (const StoredClient& stored : *clients) {
    if (!lives(stored.job) || !is_running(stored.process)) {
      daemon_.store.remove_client(stored.process).ok();
      continue;
    }
    policy::Client& client = policy::add_client(daemon_.state, stored.job, stored.process, false, now);
    client.state = policy::ClientState::silent;
    client.command = short_command_of(stored.process.pid);
    // One that is stopped can't report; NVML speaks for it.
    if (auto stat = read_process(stored.process.pid); stat && stat->state != 'T') known.push_back(client.id);
    daemon_.processes.watch(stored.process,
                            [this, process = stored.process] { daemon_.guests.process_ended(process); });
  }
  daemon_.guests.restore(known);
  for (const auto& [id, info] : infos_)
    if (lives(id)) check_members(id);
  return Ok{};
}

bool Jobs::restore_job(const Json& record) {
  policy::Job job;
  JobInfo info;
  if (!read_job_record(daemon_.state, record, &job, &info)) return false;
  info.orphaned = !info.runner || !is_running(*info.runner);
  JobId id = job.id;
  daemon_.state.next_job = std::max(daemon_.state.next_job, id + 1);
  daemon_.state.jobs.emplace(id, std::move(job));
  infos_.emplace(id, std::move(info));
  watch(id);
  return true;
}

// Tells us when the runner or the root ends; watching a process twice is harmless.
void Jobs::watch(JobId id) {
  JobInfo& info = infos_.at(id);
  if (info.runner)
    daemon_.processes.watch(*info.runner, [this, id] {
      if (!lives(id)) return;
      infos_.at(id).orphaned = true;
      check_members(id);
    });
  if (info.root)
    daemon_.processes.watch(*info.root, [this, id] {
      if (lives(id) && infos_.at(id).orphaned) check_members(id);
    });
}

// Processes from which all others of the job descend, as far as we know them.
std::vector<ProcessId> Jobs::seeds(JobId id) const {
  const JobInfo& info = infos_.at(id);
  std::vector<ProcessId> roots(info.members.begin(), info.members.end());
  if (info.root) roots.push_back(*info.root);
  if (info.runner) roots.push_back(*info.runner);
  for (const auto& [number, client] : daemon_.state.clients)
    if (client.job == id && client.state != policy::ClientState::leaving) roots.push_back(client.process);
  return roots;
}

// One process may run several jobs; what belongs to the others must not be taken for this one's.
std::vector<ProcessId> Jobs::others(JobId id) const {
  const JobInfo& mine = infos_.at(id);
  std::vector<ProcessId> roots;
  for (const auto& [other, info] : infos_) {
    if (other == id || !lives(other) || !mine.runner || info.runner != mine.runner) continue;
    if (info.root) roots.push_back(*info.root);
    roots.insert(roots.end(), info.members.begin(), info.members.end());
  }
  return roots;
}

void Jobs::find_living(JobId id, std::function<void(std::vector<ProcessId>)> then) {
  const JobInfo& info = infos_.at(id);
  daemon_.disk.run(
      [search = Search{seeds(id), others(id), info.runner, info.cgroup}] { return living_processes(search); },
      std::move(then));
}

void Jobs::check_members(JobId id) {
  if (!checking_.insert(id).second) return;
  find_living(id, [this, id](std::vector<ProcessId> living) {
    checking_.erase(id);
    if (!lives(id)) return;
    members_found(id, std::move(living));
    daemon_.settle();
  });
}

void Jobs::members_found(JobId id, std::vector<ProcessId> living) {
  JobInfo& info = infos_.at(id);
  if (daemon_.state.jobs.at(id).is_default) return client_ended(id);
  if (!info.orphaned) {  // the runner lives and will tell; its orphans would be nobody's if it died
    info.members = {living.begin(), living.end()};
    return;
  }
  info.populated |= !living.empty();
  // A container may be registered before it starts.
  bool expected = !info.cgroup.empty() && !info.populated && info.created_at > wall_before(kContainerPatience);
  std::set<ProcessId> watched = std::exchange(info.watched, {});
  info.members = {living.begin(), living.end()};
  if (living.empty() && !expected) return end(id, "its last process ended");
  for (ProcessId process : living) {
    info.watched.insert(process);
    if (!watched.contains(process))
      daemon_.processes.watch(process, [this, id] {
        if (lives(id)) check_members(id);
      });
  }
}

void Jobs::tick() {
  for (const auto& [id, info] : infos_)
    if (lives(id)) check_members(id);
}

void Jobs::client_ended(JobId id) {
  if (!lives(id)) return;
  if (!daemon_.state.jobs.at(id).is_default) return;
  auto of_job = [id](const auto& entry) { return entry.second.job == id; };
  if (std::none_of(daemon_.state.clients.begin(), daemon_.state.clients.end(), of_job))
    end(id, "its last process ended");
}

void Jobs::signal(JobId id, int number, std::function<void(size_t)> done) {
  const JobInfo& info = infos_.at(id);
  daemon_.disk.run(
      [search = Search{seeds(id), others(id), info.runner, info.cgroup}, number] {
        size_t signalled = 0;
        for (ProcessId process : living_processes(search)) {
          auto opened = open_process(process.pid);
          if (opened && opened->id == process && signal_process(*opened, number)) ++signalled;
        }
        return signalled;
      },
      std::move(done));
}

}  // namespace berth::daemon
