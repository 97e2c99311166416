#include "daemon/time_scheduler.h"

#include <algorithm>
#include <cstring>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "policy/accounts.h"

namespace berth::daemon {
namespace {

constexpr auto kPlainStore = std::memory_order_relaxed;  // every field of a page stands alone

policy::TimeShare share_of(const policy::Job& job) {
  return {job.priority, job.weight, job.max_share, job.state == policy::JobState::paused};
}

}  // namespace

TimeScheduler::TimeScheduler(Daemon& daemon) : daemon_(daemon), timer_(daemon.loop) {
  const SchedulerConfig& config = daemon.settings.config.scheduler;
  settings_.quantum = config.quantum;
  settings_.starvation = config.starvation;
}

int TimeScheduler::arrived(Arrival arrival) {
  const policy::ClientId id = arrival.client;
  Client client;
  static_cast<Arrival&>(client) = std::move(arrival);
  client.progress.resize(client.devices.size());
  if (client.publishes) {
    auto page = ActivityPage::create();
    if (page)
      client.activity = std::move(*page);
    else
      log_line(page.error().message);
  }
  int writer = client.activity ? client.activity.writer() : -1;
  client.page_number = next_page_++;
  watch_lists_.forget(id);
  clients_.insert_or_assign(id, std::move(client));
  write_page(clients_.at(id));  // nothing may be sent before the welcome
  stale_ = true;
  return writer;
}

void TimeScheduler::mapped(policy::ClientId id) {
  auto it = clients_.find(id);
  if (it == clients_.end() || !it->second.activity || it->second.activity.is_sealed()) return;
  it->second.activity.seal();
  stale_ = true;
}

// Its first work since kGateTell was set. The page may not show it yet, so its word is enough to stay awake for a
// while.
void TimeScheduler::active(policy::ClientId id) {
  if (!clients_.contains(id) || state_ == State::awake) return;
  lively_ = steady_now();
  tick();
}

void TimeScheduler::departed(policy::ClientId id) {
  if (clients_.erase(id) > 0) stale_ = true;
}

void TimeScheduler::settle() {
  if (!std::exchange(stale_, false)) return;
  update_contenders();
  tick();
}

bool TimeScheduler::is_on(const Client& client, size_t ordinal) const {
  if (client.devices[ordinal] < 0) return false;
  auto job = daemon_.state.jobs.find(client.job);
  auto device = static_cast<size_t>(client.devices[ordinal]);
  if (job == daemon_.state.jobs.end() || !lives(job->second) || device >= job->second.devices.size()) return false;
  if (job->second.devices[device].placed) return true;
  // Some programs find their way to cards that are not their place.
  auto holder = daemon_.state.clients.find(client.client);
  return holder != daemon_.state.clients.end() && policy::held(holder->second.holdings[device]) > 0;
}

// The jobs that have a client on a device are its contenders.
void TimeScheduler::update_contenders() {
  std::set<std::pair<policy::DeviceIndex, policy::JobId>> present;
  for (const auto& [id, client] : clients_)
    for (size_t i = 0; i < client.devices.size(); ++i)
      if (is_on(client, i)) present.emplace(static_cast<policy::DeviceIndex>(client.devices[i]), client.job);
  for (auto& [index, device] : devices_)
    std::erase_if(device.jobs, [&, index = index, &turns = device.turns](const auto& entry) {
      if (present.contains({index, entry.first})) return false;
      policy::remove_contender(turns, entry.first);
      return true;
    });
  for (auto [index, job] : present) {
    DeviceState& device = devices_[index];
    device.jobs.try_emplace(job);
    policy::set_contender(device.turns, job, share_of(daemon_.state.jobs.at(job)));
  }
  lists_stale_ = true;
}

void TimeScheduler::update_gates(policy::Time now) {
  const policy::Time target = daemon_.settings.config.scheduler.latency_target;
  for (auto& [index, device] : devices_)
    for (auto& [job, memory] : device.jobs) {
      policy::Gate gate = policy::gate_of(device.turns, job, now, target);
      lists_stale_ |= gate.hold != memory.gate.hold;
      memory.gate = gate;
    }
}

void TimeScheduler::update_watch_lists() {
  std::vector<Watchable> all;
  for (const auto& [id, client] : clients_) {
    auto job = daemon_.state.jobs.find(client.job);
    if (job == daemon_.state.jobs.end()) continue;
    Watchable one{id, client.job, job->second.priority, client.devices, false, false, client.page_number};
    for (size_t i = 0; i < one.devices.size(); ++i)
      if (is_on(client, i))
        one.looks |= devices_.at(static_cast<policy::DeviceIndex>(one.devices[i])).jobs.at(client.job).gate.hold;
      else
        one.devices[i] = -1;
    one.looks &= static_cast<bool>(client.activity);
    one.shown = client.activity.is_sealed() && !client.distrusted;
    all.push_back(std::move(one));
  }
  watch_lists_.update(all, [this](policy::ClientId to, const wire::Watch& message) {
    auto about = clients_.find(message.client_id);
    int page =
        message.relation == wire::Relation::none || about == clients_.end() ? -1 : about->second.activity.reader();
    clients_.at(to).connection->send_message(message, page);
  });
}

// Nobody's work comes before that of high priority, so its graphs stay whole.
policy::Time TimeScheduler::longest_graph(const Client& client) const {
  const SchedulerConfig& config = daemon_.settings.config.scheduler;
  auto job = daemon_.state.jobs.find(client.job);
  bool split = config.split_graphs && job != daemon_.state.jobs.end() && job->second.priority != policy::Priority::high;
  return split ? config.latency_target : policy::Time(0);
}

bool TimeScheduler::write_page(Client& client) {
  bool track = false, hold = false;
  client.page->split_ns.store(static_cast<uint64_t>(longest_graph(client).count()), kPlainStore);
  for (size_t i = 0; i < client.devices.size(); ++i) {
    wire::PageCard& shown = client.page->cards[i];
    shown.starved_ns.store(static_cast<uint64_t>(settings_.starvation.count()), kPlainStore);
    auto device = devices_.find(static_cast<policy::DeviceIndex>(client.devices[i]));
    bool known = is_on(client, i) && device != devices_.end() && device->second.jobs.contains(client.job);
    if (!known) {
      shown.may_run.store(wire::kRunFree, kPlainStore);
      shown.paused.store(0, kPlainStore);
      continue;
    }
    const policy::Contender& contender = device->second.turns.contenders.at(client.job);
    const policy::Gate& gate = device->second.jobs.at(client.job).gate;
    shown.may_run.store(contender.held == policy::Held::no ? wire::kRunFree : wire::kRunHeld, kPlainStore);
    shown.paused.store(contender.share.paused ? 1 : 0, kPlainStore);
    shown.window_ns.store(static_cast<uint64_t>(gate.window.count()), kPlainStore);
    shown.excess.store(excess_above(device->second, client.job), kPlainStore);
    track |= gate.track;
    hold |= gate.hold;
  }
  // The turns come first: who sees the gate shall find them.
  uint32_t gate = client.activity && track ? wire::kGateTrack : 0;
  if (gate && hold) gate |= wire::kGateHold;
  if (gate && state_ != State::awake) gate |= wire::kGateTell;
  if (gate & wire::kGateHold && has_peers(client)) gate |= wire::kGateStarted;
  uint32_t before = client.page->gate.exchange(gate, std::memory_order_release);
  return (~before & gate & wire::kGateHold) != 0;
}

bool TimeScheduler::has_peers(const Client& client) const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [&](const auto& entry) { return entry.second.job == client.job && entry.first != client.client; });
}

void TimeScheduler::tick() {
  policy::Time now = steady_now();
  std::map<policy::DeviceIndex, Sightings> seen = look(now);
  for (auto& [index, device] : devices_) {
    policy::tick(device.turns, seen[index], now, settings_);
    for (auto& [job, memory] : device.jobs)
      if (const policy::Contender& contender = device.turns.contenders.at(job);
          contender.wants && contender.held != policy::Held::no)
        memory.blocker = 0;
  }
  update_gates(now);
  if (std::exchange(lists_stale_, false)) update_watch_lists();
  plan(now);
  auto look_again = wire::make_message<wire::Watch>();
  std::memset(look_again.devices, -1, sizeof look_again.devices);
  // A guest's helper sleeps while nothing is held; any packet makes it look at its page.
  for (auto& [id, client] : clients_)
    if (write_page(client)) client.connection->send_message(look_again);
}

void TimeScheduler::plan(policy::Time now) {
  if (now - lively_ >= policy::kStaysAwake) {
    bool was_awake = state_ == State::awake;
    state_ = was_awake ? State::resting : State::asleep;
    if (was_awake) return set_timer(policy::kSlowTick);
    timer_.cancel();
    return;
  }
  state_ = State::awake;
  policy::Time next = policy::kSlowTick;
  for (const auto& [index, device] : devices_) next = std::min(next, policy::next_tick(device.turns, now).value_or(next));
  set_timer(next);
}

void TimeScheduler::set_timer(policy::Time delay) {
  timer_.expires_after(delay);
  timer_.async_wait([this](asio::error_code error) {
    if (!error) tick();
  });
}

}  // namespace berth::daemon
