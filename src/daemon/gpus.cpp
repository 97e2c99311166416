#include "daemon/gpus.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "base/size.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/device_lock.h"
#include "daemon/log.h"
#include "daemon/users.h"
#include "policy/compute_mode.h"
#include "policy/placement.h"

namespace berth::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr policy::Time kRest = seconds(20);       // a pause for which NVML is put away
constexpr policy::Time kFast = milliseconds(50);  // while bytes are leaving
constexpr policy::Time kPatient = seconds(1);     // while they have been leaving for kLong
constexpr policy::Time kLong = seconds(10);
constexpr policy::Time kFresh = seconds(1);             // old enough to be read again before a decision
constexpr policy::Time kLeast = milliseconds(20);       // between the beginnings of two readings
constexpr policy::Time kSuspicion = milliseconds(250);  // until a process that isn't attached counts as escaped

GpuProcess look_up(pid_t pid) {
  GpuProcess process;
  process.chain = parent_chain(pid);
  process.process = process.chain.empty() ? ProcessId{pid, 0} : process.chain.front();
  process.command = short_command_of(pid);
  process.cgroups = cgroups_of(pid);
  struct stat info;
  if (::stat(("/proc/" + std::to_string(pid)).c_str(), &info) == 0) process.uid = info.st_uid;
  return process;
}

}  // namespace

Gpus::Gpus(Daemon& daemon, std::unique_ptr<GpuSource> source)
    : daemon_(daemon), source_(std::move(source)), timer_(daemon.loop) {}

void Gpus::open() {
  auto infos = source_->open();
  if (!infos) {
    no_device_ = infos.error();
    log_line(no_device_->message);
    return;
  }
  adopt(*infos, source_->describe());
  auto readings = source_->read();
  if (!readings || readings->size() != infos->size()) return;
  // Where somebody may have a device to himself, the first job needs to know who is there.
  bool exclusive = std::any_of(daemon_.state.devices.begin(), daemon_.state.devices.end(), [](const policy::Device& device) {
    return policy::compute_mode(device) == policy::ComputeMode::exclusive;
  });
  if (!exclusive) last_began_ = steady_now();
  for (policy::DeviceIndex i = 0; i < readings->size(); ++i)
    daemon_.state.devices[i].unmanaged = used_[i] = (*readings)[i].used_bytes;
}

void Gpus::adopt(const std::vector<GpuInfo>& infos, std::string description) {
  no_device_.reset();
  description_ = std::move(description);
  for (const GpuInfo& info : infos) {
    policy::Device device;
    device.uuid_text = info.uuid;
    device.name = info.name;
    device.total = info.total_bytes;
    device.card_mode = info.compute_mode;
    device.headroom = daemon_.settings.config.headroom.value_or(policy::kDefaultHeadroom);
    if (!parse_uuid(info.uuid, &device.uuid))
      log_line("device " + info.name + " has the odd UUID " + info.uuid + " and is left alone");
    daemon_.state.devices.push_back(device);
  }
  apply_configured_modes();
  unmanaged_.resize(infos.size());
  used_.resize(infos.size());
  locks_.resize(infos.size());
  lock_holders_.resize(infos.size());
  told_holders_.resize(infos.size());
  lock_devices();
}

void Gpus::apply_configured_modes() {
  const DeviceModes& modes = daemon_.settings.config.modes;
  for (policy::Device& device : daemon_.state.devices) device.configured_mode = modes.all;
  for (const auto& [name, mode] : modes.own) {
    if (auto index = policy::find_device(daemon_.state, name)) {
      daemon_.state.devices[*index].configured_mode = mode;
      continue;
    }
    daemon_.events.add({"unknown_device", "", "",
                        "the configuration gives the device " + name + " the compute mode " + policy::to_string(mode) +
                            ", and there is no such device here",
                        {{"name", name}}});
  }
}

void Gpus::when_fresh(std::function<void()> then) {
  if (no_device_) {
    daemon_.nvml.run(
        [source = source_.get()] {
          auto infos = source->open();
          return std::pair(std::move(infos), source->describe());
        },
        [this, then = std::move(then)](std::pair<Result<std::vector<GpuInfo>>, std::string> found) {
          if (!no_device_) return when_fresh(then);  // another request has found them meanwhile
          if (!found.first)
            no_device_ = found.first.error();
          else
            adopt(*found.first, std::move(found.second));
          no_device_ ? then() : when_fresh(then);
        });
    return;
  }
  if (steady_now() - last_began_ < kFresh && !reading_) return then();
  waiting_.push_back(std::move(then));
  request();
}

void Gpus::lock_devices() {
  for (policy::DeviceIndex i = 0; i < locks_.size(); ++i) {
    if (locks_[i]) {
      answer_knocks(locks_[i]);
      continue;
    }
    locks_[i] = lock_device(daemon_.state.devices[i].uuid_text, &lock_holders_[i]);
    std::string holder = text_of(lock_holders_[i]);
    if (locks_[i] || std::exchange(told_holders_[i], holder) == holder) continue;
    daemon_.events.add({"shared_device",
                        "",
                        "",
                        shared_device_text(i, lock_holders_[i]),
                        {{"device", i},
                         {"holder", holder},
                         {"pid", lock_holders_[i].pid ? Json(lock_holders_[i].pid) : Json(nullptr)}}});
  }
}

std::optional<LockHolder> Gpus::locked_by(policy::DeviceIndex device) const {
  if (locks_[device]) return std::nullopt;
  return lock_holders_[device];
}

std::string shared_device_text(policy::DeviceIndex device, const LockHolder& holder) {
  std::string whose = holder.user.empty() ? "" : ", that of " + text_of(holder) + ",";
  return "another berth daemon" + whose + " shares out GPU " + std::to_string(device) +
         " too; what its jobs hold counts as unmanaged here";
}

void Gpus::request() {
  pace_ = kUsual;
  read_soon();
}

void Gpus::read_soon() {
  if (daemon_.state.devices.empty()) return;
  if (reading_) {
    again_ = true;
    return;
  }
  policy::Time now = steady_now();
  if (now - last_began_ >= kLeast) return begin();
  wanted_ = true;
  wait(last_began_ + kLeast - now);
}

void Gpus::begin() {
  timer_.cancel();
  timer_set_ = false;
  reading_ = true;
  resting_ = false;
  again_ = wanted_ = false;
  policy::begin_reading(daemon_.state);
  last_began_ = steady_now();
  std::set<pid_t> known;
  for (const auto& [id, client] : daemon_.state.clients)
    if (!client.viewer) known.insert(client.process.pid);
  daemon_.nvml.run(
      [source = source_.get(), known = std::move(known)]() -> Readings {
        Readings result{source->read(), {}};
        std::set<pid_t> seen;
        if (result.first)
          for (const GpuReading& reading : *result.first)
            for (const policy::ProcessUse& use : reading.processes)
              if (!known.contains(use.pid) && seen.insert(use.pid).second) result.second.push_back(look_up(use.pid));
        return result;
      },
      [this, began = last_began_](Readings readings) { done(began, std::move(readings)); });
}

void Gpus::done(policy::Time began, Readings readings) {
  reading_ = false;
  auto& [result, processes] = readings;
  if (result && result->size() == daemon_.state.devices.size()) {
    failed_ = false;
    pace_ = next_pace(pace_, *result != last_ || guarding());
    take(began, *result, processes);
    last_ = std::move(*result);
  } else if (!std::exchange(failed_, true)) {
    std::string why = result ? "the number of devices has changed" : result.error().message;
    log_line("cannot read the devices: " + why);
    daemon_.events.add({"devices_unreadable", "", "", "the devices cannot be read: " + why, Json::object()});
  }
  daemon_.guests.reading_done(began);
  for (auto& then : std::exchange(waiting_, {})) then();
  daemon_.settle();
  if (again_) request();
}

// Whoever escapes from a strict job is ended, and soon.
bool Gpus::guarding() const {
  return std::any_of(daemon_.state.jobs.begin(), daemon_.state.jobs.end(), [](const auto& entry) {
    return entry.second.strict && entry.second.state != policy::JobState::ended;
  });
}

policy::Time next_pace(policy::Time pace, bool changing) { return changing ? kUsual : std::min(pace * 2, kCalm); }

void Gpus::take(policy::Time began, const std::vector<GpuReading>& readings, const std::vector<GpuProcess>& processes) {
  policy::Time now = steady_now();
  // Whoever attached while the reading ran is no stranger any more.
  auto is_client = [&](ProcessId process) {
    return std::any_of(daemon_.state.clients.begin(), daemon_.state.clients.end(),
                       [&](const auto& entry) { return entry.second.process == process && !entry.second.viewer; });
  };
  std::set<ProcessId> present;
  std::map<pid_t, const GpuProcess*> unmanaged;
  for (const GpuProcess& process : processes) {
    if (is_client(process.process)) continue;
    present.insert(process.process);
    if (auto job = daemon_.job_of(process.chain, process.cgroups))
      judge(process, *job, now);
    else
      unmanaged[process.process.pid] = &process;
  }
  std::erase_if(suspects_, [&](const auto& entry) { return !present.contains(entry.first); });
  std::erase_if(told_unmanaged_, [&](ProcessId process) { return !present.contains(process); });

  for (policy::DeviceIndex i = 0; i < readings.size(); ++i) {
    const GpuReading& reading = readings[i];
    used_[i] = reading.used_bytes;
    note_compute(i, reading, unmanaged);
    unmanaged_[i].clear();
    for (const policy::ProcessUse& use : reading.processes)
      if (auto it = unmanaged.find(use.pid); it != unmanaged.end())
        unmanaged_[i].push_back({use.pid, it->second->uid, it->second->command, use.bytes});
    for (const policy::Drift& drift : policy::apply_reading(
             daemon_.state, i, {began, reading.used_bytes, reading.lists_processes, reading.processes}, now)) {
      const policy::Client& client = daemon_.state.clients.at(drift.client);
      const policy::Job& job = daemon_.state.jobs.at(client.job);
      daemon_.events.add({"drift",
                          job.name,
                          job.user,
                          client.command + " (process " + std::to_string(client.process.pid) + ") holds " +
                              format_size(drift.nvml_bytes) + " on GPU " + std::to_string(i) +
                              " by NVML, and its account says " + format_size(drift.account_bytes),
                          {{"pid", client.process.pid},
                           {"device", i},
                           {"nvml_bytes", drift.nvml_bytes},
                           {"account_bytes", drift.account_bytes}}});
    }
  }
  for (const auto& [pid, process] : unmanaged)
    if (told_unmanaged_.insert(process->process).second)
      daemon_.events.add({"unmanaged_process",
                          "",
                          user_name(process->uid),
                          process->command + " (process " + std::to_string(pid) +
                              ") uses a GPU and belongs to no job; what it holds can't be promised",
                          {{"pid", pid}, {"uid", process->uid}}});
}

// The card's own compute mode, and who of no job has contexts there.
void Gpus::note_compute(policy::DeviceIndex index, const GpuReading& reading,
                        const std::map<pid_t, const GpuProcess*>& unmanaged) {
  policy::Device& device = daemon_.state.devices[index];
  device.stranger.clear();
  for (const policy::ProcessUse& use : reading.processes) {
    auto it = unmanaged.find(use.pid);
    if (it == unmanaged.end() || !use.computes) continue;
    if (it->second->chain.empty()) continue;  // it has just ended
    device.stranger = it->second->command + " (process " + std::to_string(use.pid) + ") of no job";
    break;
  }
  policy::ComputeMode before = policy::compute_mode(device);
  device.card_mode = reading.compute_mode;
  policy::ComputeMode mode = policy::compute_mode(device);
  if (mode == before) return;
  daemon_.events.add({"compute_mode", "", "",
                      "the compute mode of GPU " + std::to_string(index) + " is " + policy::to_string(mode) + " now, and was " +
                          policy::to_string(before),
                      {{"device", index}, {"compute_mode", policy::to_string(mode)}}});
}

// A process below a job that is on a device without being attached. It may be about to attach, so it gets a little
// time.
void Gpus::judge(const GpuProcess& process, policy::JobId job, policy::Time now) {
  if (daemon_.guests.collecting()) return;
  auto [it, first] = suspects_.emplace(process.process, now);
  if (first) return wait(kSuspicion);
  if (now - it->second < kSuspicion) return;
  suspects_.erase(it);
  escaped(process, job);
}

void Gpus::escaped(const GpuProcess& process, policy::JobId id) {
  const policy::Job& job = daemon_.state.jobs.at(id);
  policy::Client& client = policy::add_client(daemon_.state, id, process.process, false, steady_now());
  client.state = policy::ClientState::escaped;
  daemon_.guests.clients_changed();
  client.command = process.command;
  std::string text = process.command + " (process " + std::to_string(process.process.pid) + ") of " + job.name +
                     " uses the GPU without berth; ";
  if (job.strict) {
    // The process was found below this job by pid and start time, and the pidfd is of that very process.
    auto opened = open_process(process.process.pid);
    if (opened && opened->id == process.process) signal_process(*opened, SIGKILL);
    text += "it was ended, since the job is strict";
  } else {
    text += "what it holds is charged to the job, and nothing keeps it within the quota (try --isolate)";
  }
  daemon_.events.add(
      {"escaped_process", job.name, job.user, text, {{"pid", process.process.pid}, {"strict", job.strict}}});
  Json message = {{"event", "message"}, {"text", text}}, end = {{"event", "end_job"}, {"reason", text}};
  daemon_.jobs.tell(id, job.strict ? end : message);  // one of them: the command says either
  daemon_.processes.watch(process.process, [this, ended = process.process] { daemon_.guests.process_ended(ended); });
}

void Gpus::settle() {
  policy::Time now = steady_now();
  std::optional<policy::Time> delay;
  for (const auto& [id, client] : daemon_.state.clients)
    if (client.state == policy::ClientState::leaving)
      delay = std::min(delay.value_or(kPatient), now - client.since > kLong ? kPatient : kFast);
  if (!suspects_.empty()) delay = std::min(delay.value_or(kSuspicion), kSuspicion);
  if (!delay && (daemon_.jobs.any_living() || daemon_.jobs.any_waiting())) delay = pace_;
  if ((!delay || *delay >= kRest) && !reading_ && !wanted_ && !std::exchange(resting_, true))
    daemon_.nvml.run([source = source_.get()] { return source->rest(), 0; }, [](int) {});
  if (delay) return wait(*delay);
  if (!timer_set_ || wanted_) return;
  timer_.cancel();
  timer_set_ = false;
}

// The next reading begins after `delay`, or earlier if that was planned.
void Gpus::wait(policy::Time delay) {
  if (daemon_.state.devices.empty()) return;
  policy::Time at = steady_now() + delay;
  if (timer_set_ && timer_at_ <= at) return;
  timer_at_ = at;
  timer_set_ = true;
  timer_.expires_after(delay);
  timer_.async_wait([this](asio::error_code error) {
    if (error) return;
    timer_set_ = false;
    daemon_.jobs.tick();
    read_soon();
  });
}

}  // namespace berth::daemon
