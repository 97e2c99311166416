#include "daemon/jobs.h"

#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/records.h"
#include "daemon/users.h"
#include "daemon/views.h"
#include "daemon/virtual_uuid.h"
#include "policy/names.h"
#include "policy/virtual_devices.h"

namespace berth::daemon {
namespace {

constexpr size_t kEndedJobs = 100;  // shown by `ps -a`

std::string memory_text(const policy::Job& job) {
  std::string text;
  for (size_t i = 0; i < job.devices.size(); ++i) {
    if (!job.devices[i].placed) continue;
    text += (text.empty() ? "" : ", ") + std::string("GPU ") + std::to_string(i) + " ";
    auto virtual_devices = policy::virtual_devices_on(job, static_cast<policy::DeviceIndex>(i));
    if (!virtual_devices.empty())
      text += policy::amount_text(job.virtual_devices[virtual_devices[0]].quota, virtual_devices.size());
    else
      text += job.devices[i].quota ? "quota " + format_size(*job.devices[i].quota) : "without a quota";
  }
  return text;
}

Json memory_fields(const policy::State& state, const policy::Job& job) {
  Json devices = Json::array();
  for (size_t i = 0; i < job.devices.size(); ++i)
    if (job.devices[i].placed)
      devices.push_back(
          {{"index", i}, {"quota_bytes", job.devices[i].quota ? Json(*job.devices[i].quota) : Json(nullptr)}});
  return {{"devices", devices}, {"virtual_devices", virtual_devices_json(state, job)}};
}

}  // namespace

void Jobs::admit(AdmitOrder order, JobId* queued) {
  *queued = 0;
  policy::Request& request = order.request;
  request.may_wait = order.wait_seconds != 0;
  auto result = policy::admit(daemon_.state, request, order.limits);
  if (auto* error = std::get_if<Error>(&result)) {
    daemon_.events.add({"job_refused", request.name, request.user, error->message, {{"code", error->code}}});
    return order.reply(*error);
  }
  if (auto* admitted = std::get_if<policy::Admitted>(&result)) return added(admitted->job, std::move(order));

  auto& wait = std::get<policy::Queued>(result);
  JobId id = *queued = wait.job;
  const policy::Job& job = daemon_.state.jobs.at(id);
  JobInfo& info = infos_[id];
  info.created_at = wall_now();
  daemon_.events.add({"job_queued",
                      job.name,
                      job.user,
                      job.name + " waits for room: " + wait.waiting_for,
                      {{"position", wait.position}}});
  Waiting& waiting = waiting_[id];
  waiting.order = std::move(order);
  if (waiting.order.wait_seconds > 0) {
    waiting.timer = std::make_unique<asio::steady_timer>(
        daemon_.loop, std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::duration<double>(waiting.order.wait_seconds)));
    waiting.timer->async_wait([this, id](asio::error_code error) {
      if (error || !waiting_.contains(id)) return;
      // Why there is none was said when it was queued.
      leave_queue(id, "no room after " + std::to_string(std::llround(waiting_.at(id).order.wait_seconds)) +
                          " s; wait longer, ask for less, or end one of the jobs that are in the way");
      daemon_.settle();
    });
  }
  tell_positions();
}

// An admitted job is on disk before anybody is told.
void Jobs::added(JobId id, AdmitOrder order) {
  policy::Job& job = daemon_.state.jobs.at(id);
  name_virtual_devices(job);
  JobInfo& info = infos_[id];
  if (info.created_at.empty()) info.created_at = wall_now();
  info.runner = order.runner;
  info.cgroup = order.cgroup;
  info.orphaned = !info.cgroup.empty();  // nobody runs a container for us
  info.tell = order.tell;
  daemon_.disk.run(
      [this, id, record = job_record(daemon_.state, job, info)] { return daemon_.store.save_job(id, record); },
      [this, id, reply = std::move(order.reply)](Status saved) {
        policy::Job& kept = daemon_.state.jobs.at(id);
        if (!saved) {
          policy::end_job(daemon_.state, id);
          daemon_.state.jobs.erase(id);
          infos_.erase(id);
          reply(saved.error());
        } else {
          daemon_.events.add({"job_admitted", kept.name, kept.user, kept.name + " admitted: " + memory_text(kept),
                              memory_fields(daemon_.state, kept)});
          watch(id);
          reply(id);
        }
        daemon_.settle();
      });
}

void Jobs::leave_queue(JobId id, const std::string& why) {
  auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  AdmitOrder order = std::move(it->second.order);
  waiting_.erase(it);
  const policy::Job& job = daemon_.state.jobs.at(id);
  daemon_.events.add({"job_refused", job.name, job.user, job.name + " left the queue: " + why, Json::object()});
  policy::end_job(daemon_.state, id);
  infos_.erase(id);
  order.reply(Error{"refused", why});
  tell_positions();
}

void Jobs::tell_positions() {
  for (auto& [id, waiting] : waiting_) {
    size_t position = policy::queue_position(daemon_.state, id);
    if (position == 0 || std::exchange(waiting.told_position, position) == position) continue;
    if (waiting.order.tell)
      waiting.order.tell(
          {{"event", "queued"}, {"position", position}, {"waiting_for", policy::waiting_for(daemon_.state, id)}});
  }
}

void Jobs::admit_waiting() {
  std::vector<JobId> admitted = policy::admit_waiting(daemon_.state);
  for (JobId id : admitted) {
    auto waiting = waiting_.extract(id);
    added(id, std::move(waiting.mapped().order));
  }
  if (!admitted.empty()) tell_positions();
}

Status Jobs::start(JobId id, ProcessId sender, pid_t pid, Tell tell) {
  if (!lives(id) || !infos_.contains(id)) return Error{"unknown_job", "there is no such job any more"};
  JobInfo& info = infos_.at(id);
  if (!info.runner || *info.runner != sender)
    return Error{"not_permitted", "only the process that had the job admitted may start it"};
  auto root = read_process(pid);
  bool again = info.root && info.root->pid == pid;
  if (!again && info.root) return Error{"usage", "the job has started already"};
  if (!again && (!root || root->parent != sender.pid))
    return Error{"usage", "process " + std::to_string(pid) + " is no child of the sender"};
  info.tell = std::move(tell);
  if (again) return Ok{};
  info.root = root->id;
  info.started_at = wall_now();
  watch(id);
  save(id, [this, id](Status saved) {
    if (!saved) this->tell(id, {{"event", "message"}, {"text", saved.error().message}});
  });
  return Ok{};
}

Status Jobs::finish(JobId id, ProcessId sender, int exit_code, std::function<void()> done) {
  if (!lives(id)) return Error{"unknown_job", "there is no such job any more"};
  JobInfo& info = infos_.at(id);
  if (!info.runner || *info.runner != sender)
    return Error{"not_permitted", "only the process that runs the job may finish it"};
  info.exit_code = exit_code;
  info.orphaned = true;  // what still lives keeps the job alive
  info.tell = nullptr;
  find_living(id, [this, id, done = std::move(done)](std::vector<ProcessId> living) {
    if (lives(id)) members_found(id, std::move(living));
    done();
    daemon_.settle();
  });
  return Ok{};
}

void Jobs::runner_disconnected(JobId id) {
  if (!lives(id)) return;
  JobInfo& info = infos_.at(id);
  info.tell = nullptr;
  if (!info.root && info.cgroup.empty()) end(id, "given up before it started");
}

void Jobs::give_up_container(JobId id) {
  if (lives(id) && !infos_.at(id).cgroup.empty() && !infos_.at(id).populated) end(id, "killed before its container started");
}

Result<JobId> Jobs::default_job(uid_t uid) {
  for (const auto& [id, job] : daemon_.state.jobs)
    if (job.is_default && job.uid == uid && lives(id)) return id;
  policy::Request request;
  request.name = "default";
  request.user = user_name(uid);
  request.uid = uid;
  request.is_default = true;
  auto limits =
      limits_of(daemon_.settings.config, request.user, group_names(request.user), daemon_.settings.system, uid == 0);
  request.priority = std::min(policy::Priority::normal, limits.max_priority);
  request.weight = std::min<int64_t>(100, limits.max_weight);
  auto result = policy::admit(daemon_.state, request, limits);
  if (auto* error = std::get_if<Error>(&result)) return *error;
  JobId id = std::get<policy::Admitted>(result).job;
  infos_[id].created_at = infos_[id].started_at = wall_now();
  save(id, [](Status) {});
  return id;
}

std::optional<JobId> Jobs::job_of(const std::vector<ProcessId>& chain, const std::vector<std::string>& cgroups) const {
  // A root is sure. What was found below a runner may be another job's root that the same runner had not told yet.
  for (ProcessId process : chain) {
    for (const auto& [id, info] : infos_)
      if (lives(id) && info.root == process) return id;
    for (const auto& [id, info] : infos_)
      if (lives(id) && (info.runner == process || info.members.contains(process))) return id;
  }
  auto inside = [&](const std::string& container) {
    return std::any_of(cgroups.begin(), cgroups.end(), [&](const std::string& group) {
      return group == container || group.starts_with(container + "/");
    });
  };
  for (const auto& [id, info] : infos_)
    if (lives(id) && !info.cgroup.empty() && inside(info.cgroup)) return id;
  return std::nullopt;
}

void Jobs::save(JobId id, std::function<void(Status)> done) {
  daemon_.disk.run(
      [this, id, record = job_record(daemon_.state, daemon_.state.jobs.at(id), infos_.at(id))] {
        return daemon_.store.save_job(id, record);
      },
      std::move(done));
}

bool Jobs::lives(JobId id) const {
  auto it = daemon_.state.jobs.find(id);
  return it != daemon_.state.jobs.end() && it->second.state != policy::JobState::ended &&
         it->second.state != policy::JobState::waiting;
}

bool Jobs::any_living() const {
  return std::any_of(infos_.begin(), infos_.end(), [this](const auto& entry) { return lives(entry.first); });
}

bool Jobs::any_waiting() const { return !waiting_.empty(); }

void Jobs::tell(JobId id, const Json& event) const {
  auto it = infos_.find(id);
  if (it != infos_.end() && it->second.tell) it->second.tell(event);
}

void Jobs::end(JobId id, const std::string& why) {
  const policy::Job& job = daemon_.state.jobs.at(id);
  JobInfo& info = infos_.at(id);
  policy::end_job(daemon_.state, id);
  daemon_.time.changed();
  info.ended_at = wall_now();
  info.tell = nullptr;
  info.members.clear();
  info.watched.clear();
  std::string text = info.exit_code ? why + ", exit code " + std::to_string(*info.exit_code) : why;
  daemon_.events.add({"job_ended",
                      job.name,
                      job.user,
                      job.name + " ended: " + text,
                      {{"exit_code", info.exit_code ? Json(*info.exit_code) : Json(nullptr)}}});
  daemon_.disk.run([this, id] { return daemon_.store.remove_job(id); }, [](Status) {});
  forget_old();
}

void Jobs::forget_old() {
  size_t ended =
      static_cast<size_t>(std::count_if(daemon_.state.jobs.begin(), daemon_.state.jobs.end(), [](const auto& entry) {
        return entry.second.state == policy::JobState::ended;
      }));
  for (auto it = daemon_.state.jobs.begin(); ended > kEndedJobs && it != daemon_.state.jobs.end();) {
    auto has_clients = [&](const auto& entry) { return entry.second.job == it->first; };
    bool old = it->second.state == policy::JobState::ended &&
               std::none_of(daemon_.state.clients.begin(), daemon_.state.clients.end(), has_clients);
    if (!old) {
      ++it;
      continue;
    }
    infos_.erase(it->first);
    it = daemon_.state.jobs.erase(it);
    --ended;
  }
}

}  // namespace berth::daemon
