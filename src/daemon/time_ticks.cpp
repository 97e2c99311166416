// What the ticks of the scheduler see: sightings of the clients' work, things people should know.
#include <algorithm>
#include <cmath>

#include "daemon/clock.h"
#include "daemon/daemon.h"

namespace berth::daemon {
namespace {

void add_up(const policy::Sighting& one, policy::Sighting* sum) {
  sum->busy |= one.busy;
  sum->outstanding += one.outstanding;
  sum->streams += one.streams;
  sum->completed += one.completed;
  sum->submitted += one.submitted;
  sum->service += one.service;
  sum->batch = std::max(sum->batch, one.batch);
}

double in_seconds(policy::Time time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::map<policy::DeviceIndex, TimeScheduler::Sightings> TimeScheduler::look(policy::Time now) {
  std::map<policy::DeviceIndex, Sightings> seen;
  for (auto& [id, client] : clients_) {
    if (!client.activity || client.distrusted) continue;
    for (size_t i = 0; i < client.devices.size() && !client.distrusted; ++i) {
      if (!is_on(client, i)) continue;
      auto index = static_cast<policy::DeviceIndex>(client.devices[i]);
      auto device = devices_.find(index);
      if (device == devices_.end() || !device->second.jobs.contains(client.job)) continue;
      Look look = client.reader.read(*client.activity, static_cast<uint32_t>(i), now);
      judge(client, i, look, now);
      if (client.distrusted) continue;
      add_up(look.sighting, &seen[index][client.job]);
      JobMemory& memory = device->second.jobs.at(client.job);
      memory.waited += look.waited;
      memory.company = look.company;
      if (!look.by_higher || look.goes) continue;
      auto blocker = clients_.find(look.blocker);
      if (blocker == clients_.end() || blocker->second.job == client.job) continue;
      memory.blocker = blocker->second.job;
    }
  }
  return seen;
}

void TimeScheduler::judge(Client& client, size_t ordinal, const Look& look, policy::Time now) {
  if (!client.reader.implausible().empty()) {
    client.distrusted = true;  // nobody waits for it any more
    lists_stale_ = true;
    return tell(client, ordinal, "implausible_client",
                "shows what cannot be (" + client.reader.implausible() + "); it is not waited for any more");
  }
  Progress& progress = client.progress[ordinal];
  Concern concern = note(progress, look, now, settings_.starvation);
  const policy::Sighting& shown = look.sighting;
  if (!progress.stuck && (shown.busy || shown.outstanding > 0 || shown.submitted > 0 || shown.completed > 0))
    lively_ = now;
  if (concern == Concern::no_progress)
    tell(client, ordinal, "no_progress",
         "has had work on the GPU for " + std::to_string(kStuck / std::chrono::seconds(1)) +
             " s that does not get on: a very long kernel, or one that waits for another process");
  if (concern == Concern::starvation_pass)
    tell(client, ordinal, "starvation_pass",
         "had waited " + std::to_string(settings_.starvation / std::chrono::seconds(1)) +
             " s for work of higher priority and was let go for once");
}

void TimeScheduler::tell(const Client& client, size_t ordinal, const char* kind, const std::string& text) {
  const policy::Job& job = daemon_.state.jobs.at(client.job);
  auto process = daemon_.state.clients.find(client.client);
  if (process == daemon_.state.clients.end()) return;
  pid_t pid = process->second.process.pid;
  daemon_.events.add({kind,
                      job.name,
                      job.user,
                      process->second.command + " (process " + std::to_string(pid) + ") " + text,
                      {{"pid", pid}, {"device", client.devices[ordinal]}}});
}

// PageDevice::excess of the strictest job above this one.
uint32_t TimeScheduler::excess_above(const DeviceState& device, policy::JobId id) const {
  policy::Priority mine = device.turns.contenders.at(id).share.priority;
  std::optional<double> least;
  for (const auto& [other, contender] : device.turns.contenders) {
    auto job = daemon_.state.jobs.find(other);
    if (contender.share.priority <= mine || job == daemon_.state.jobs.end()) continue;
    double budget = job->second.max_slowdown.value_or(policy::kDefaultSlowdown);
    least = std::min(least.value_or(budget), budget);
  }
  return static_cast<uint32_t>(std::lround((least.value_or(1) - 1) * 1000));
}

TimeView TimeScheduler::view(policy::JobId job, policy::DeviceIndex index) const {
  TimeView view;
  auto found = devices_.find(index);
  if (found == devices_.end() || !found->second.jobs.contains(job)) return view;
  const DeviceState& device = found->second;
  const policy::Contender& contender = device.turns.contenders.at(job);
  const JobMemory& memory = device.jobs.at(job);
  auto held = [&](policy::Held why) { return in_seconds(contender.held_for[static_cast<size_t>(why)]); };
  view.may_run = contender.held == policy::Held::no;
  view.throttled_seconds = held(policy::Held::turn) + held(policy::Held::max_share) + held(policy::Held::paused);
  view.waited_seconds = in_seconds(memory.waited);
  view.held_by = policy::to_string(contender.last_held);
  if (memory.blocker != 0)
    if (auto blocker = daemon_.state.jobs.find(memory.blocker); blocker != daemon_.state.jobs.end())
      view.held_by = blocker->second.name;
  if (!memory.gate.track) return view;
  policy::ServiceHistory history = contender.history;
  policy::Time now = steady_now();
  view.second_ratio = policy::second_ratio(history, now);
  view.minute_ratio = policy::minute_ratio(history, now);
  view.window_seconds = in_seconds(memory.gate.window);
  view.company_seconds = in_seconds(memory.company);
  view.waiting_bound_seconds = in_seconds(policy::waiting_bound(device.turns, job, settings_));
  return view;
}

}  // namespace berth::daemon
