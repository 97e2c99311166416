// What the ticks of the scheduler see: sightings of the clients' work, latency budgets, things people should know.
#include <algorithm>

#include "daemon/clock.h"
#include "daemon/daemon.h"

namespace berth::daemon {
namespace {

constexpr policy::Time kCompanyHolds = std::chrono::milliseconds(250);

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

double TimeScheduler::slowdown_of(policy::JobId job) const {
  auto found = daemon_.state.jobs.find(job);
  return found == daemon_.state.jobs.end() ? 1 : found->second.max_slowdown.value_or(policy::kDefaultSlowdown);
}

namespace {

bool is_above_somebody(const policy::DeviceTurns& turns, const policy::Contender& contender) {
  return std::any_of(turns.contenders.begin(), turns.contenders.end(),
                     [&](const auto& entry) { return entry.second.share.priority < contender.share.priority; });
}

}  // namespace

void TimeScheduler::learn_budgets(DeviceState& device, const Sightings& sightings, policy::Time elapsed,
                                  policy::Time now) {
  for (auto& [job, memory] : device.jobs) {
    if (!is_above_somebody(device.turns, device.turns.contenders.at(job))) {
      memory.company = policy::Time(0);
      continue;
    }
    auto it = sightings.find(job);
    policy::Sighting seen = it == sightings.end() ? policy::Sighting() : it->second;
    policy::observe(memory.budget, {elapsed, seen.busy || seen.outstanding > 0, seen.service, seen.completed});
    if (now - memory.company_at < kCompanyHolds) continue;
    memory.company_at = now;
    memory.company = policy::company(memory.budget, slowdown_of(job), daemon_.settings.config.scheduler.latency_target);
  }
}

// The least that a higher job allows.
policy::Time TimeScheduler::company_of(const DeviceState& device, policy::JobId job) const {
  std::optional<policy::Time> least;
  policy::Priority mine = device.turns.contenders.at(job).share.priority;
  for (const auto& [other, memory] : device.jobs)
    if (device.turns.contenders.at(other).share.priority > mine)
      least = std::min(least.value_or(memory.company), memory.company);
  return least.value_or(policy::Time(0));
}

// Only fast ticks tell how long busy periods are, and only where lower work is there does that matter.
bool TimeScheduler::learns(const DeviceState& device, policy::Time now) const {
  for (const auto& [job, contender] : device.turns.contenders) {
    if (now - contender.last_active >= policy::kStaysFast || slowdown_of(job) <= 1) continue;
    for (const auto& [other, lower] : device.turns.contenders)
      if (lower.share.priority < contender.share.priority && now - lower.last_active < policy::kStaysAwake) return true;
  }
  return false;
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
  view.company_seconds = in_seconds(company_of(device, job));
  view.waiting_bound_seconds = in_seconds(policy::waiting_bound(device.turns, job, settings_));
  return view;
}

}  // namespace berth::daemon
