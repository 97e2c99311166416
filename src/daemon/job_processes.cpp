// The processes of jobs: who belongs, who still lives, and therefore when a job has ended.
#include <algorithm>
#include <set>

#include "daemon/cgroup_processes.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/records.h"

namespace berth::daemon {
namespace {

constexpr policy::Time kTick = std::chrono::seconds(4);  // a little less than between two usual readings
constexpr double kContainerPatience = 60;                // seconds until a registered container must have a process

// How to find all processes of one job.
struct Search {
  std::vector<ProcessId> roots, others;  // `others` and what is below them belong to other jobs
  std::optional<ProcessId> runner;
  std::string cgroup;
  bool thorough = true;  // false: for a look every now and then
};

// Everything below the roots, but not the runner, and not this daemon, which `berth run` may have started.
std::vector<ProcessId> living_processes(const Search& search) {
  auto below = search.thorough ? descendants : descendants_at_a_glance;
  std::vector<ProcessId> living = below(search.roots);
  if (!search.cgroup.empty()) {
    std::vector<ProcessId> contained = processes_of_cgroup("/sys/fs/cgroup", search.cgroup);
    living.insert(living.end(), contained.begin(), contained.end());
    std::sort(living.begin(), living.end());
    living.erase(std::unique(living.begin(), living.end()), living.end());
  }
  if (living.empty()) return living;
  std::set<ProcessId> foreign;
  if (!search.others.empty())
    for (ProcessId process : below(search.others)) foreign.insert(process);
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

// While the runner lives it is not for us to find the end, and a glance will do.
void Jobs::find_living(JobId id, std::function<void(std::vector<ProcessId>)> then) {
  const JobInfo& info = infos_.at(id);
  Search search{seeds(id), others(id), info.runner, info.cgroup, info.orphaned};
  daemon_.disk.run([search = std::move(search)] { return living_processes(search); }, std::move(then));
}

// One search at a time; what happens meanwhile calls for another.
void Jobs::check_members(JobId id) {
  auto [it, first] = checking_.emplace(id, false);
  if (!first) {
    it->second = true;
    return;
  }
  find_living(id, [this, id](std::vector<ProcessId> living) {
    bool again = checking_.extract(id).mapped();
    if (!lives(id)) return;
    members_found(id, std::move(living));
    if (again && lives(id)) check_members(id);
    daemon_.settle();
  });
}

void Jobs::members_found(JobId id, std::vector<ProcessId> living) {
  JobInfo& info = infos_.at(id);
  if (daemon_.state.jobs.at(id).is_default) return;  // ends with its last client
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
  policy::Time now = steady_now();
  if (now - ticked_ < kTick) return;
  ticked_ = now;
  for (const auto& [id, info] : infos_)
    if (lives(id)) check_members(id);
}

void Jobs::end_default_jobs() {
  for (const auto& [id, info] : infos_) {
    if (!lives(id) || !daemon_.state.jobs.at(id).is_default) continue;
    auto of_job = [job = id](const auto& entry) { return entry.second.job == job; };
    if (std::any_of(daemon_.state.clients.begin(), daemon_.state.clients.end(), of_job)) continue;
    return end(id, "its last process ended");  // the next one is found at the next settling
  }
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
