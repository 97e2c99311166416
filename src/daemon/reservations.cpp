// Reservations of guests: answered at once where that is possible, else when it is certain that a refusal is right.
// A reservation that can't be granted waits (parked), never longer than kPatience:
//   1. until the pending packets of all who could release have been read,
//   2. if the device looks full, or another process seems to have it to itself: until NVML has been read once more,
//   3. while bytes are leaving that would make room, or the dead have the device to themselves.
#include "base/size.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"
#include "policy/virtual_devices.h"

namespace berth::daemon {
namespace {

constexpr policy::Time kPatience = std::chrono::seconds(3);    // less than a guest's 5 s
constexpr policy::Time kToldEvery = std::chrono::seconds(10);  // over_quota events of one client
constexpr int kMaxRounds = 16;                                 // of reading pending packets

policy::Force force_of(wire::Force force) {
  switch (force) {
    case wire::Force::first_context:
      return policy::Force::first_context;
    case wire::Force::taken:
      return policy::Force::taken;
    case wire::Force::none:
      break;
  }
  return policy::Force::none;
}

}  // namespace

void Guests::on_reserve(Session& session, const wire::Reserve& message) {
  auto place = place_of(session, message.device);
  if (!place || message.kind >= wire::Kind::count)
    return malformed(session.connection, "it reserves memory of no device", session.client);
  end_report(session);
  if (parked_.size() >= kMaxParked)
    return malformed(session.connection, "it asks for too much at once", session.client);
  Parked parked;
  parked.client = session.client;
  parked.sequence = message.header.sequence;
  parked.place = *place;
  parked.ask = {static_cast<policy::Kind>(message.kind), message.bytes, force_of(message.force)};
  parked.of_all = !policy::has_quota(daemon_.state.jobs.at(session.job)) ||
                  policy::compute_mode(daemon_.state.devices[parked.place.device]) != policy::ComputeMode::shared;
  parked.since = steady_now();
  if (collecting()) {
    parked_.push_back(parked);
    return;
  }
  auto answer = policy::reserve(daemon_.state, session.client, parked.place, parked.ask, parked.since);
  if (answer.verdict == policy::Verdict::granted) return send_grant(parked, answer);
  parked_.push_back(parked);
}

void Guests::send_grant(const Parked& parked, const policy::Answer& answer) {
  Session& session = sessions_.at(parked.client);
  update_pages(session.job);  // no page may be older than the reply
  auto grant = wire::make_message<wire::Grant>(parked.sequence);
  switch (answer.verdict) {
    case policy::Verdict::granted:
      grant.status = wire::GrantStatus::granted;
      break;
    case policy::Verdict::over_quota:
      grant.status = wire::GrantStatus::over_quota;
      break;
    case policy::Verdict::device_full:
      grant.status = wire::GrantStatus::device_full;
      break;
    case policy::Verdict::unavailable:
      grant.status = wire::GrantStatus::unavailable;
      break;
  }
  grant.bytes = answer.bytes;
  grant.available = answer.available;
  session.connection->send_message(grant);
  // A job that computes on a device that is not its place takes part in what is shared out there.
  if (answer.verdict == policy::Verdict::granted && parked.ask.kind == policy::Kind::overhead &&
      !daemon_.state.jobs.at(session.job).devices[parked.place.device].placed)
    daemon_.time.changed();
}

// Reads what all have sent who could release for this reservation: its job, or everybody.
void Guests::drain(const Parked& parked) {
  policy::JobId job = sessions_.at(parked.client).job;
  std::vector<std::shared_ptr<Connection>> connections;
  for (const auto& [id, session] : sessions_)
    if (parked.of_all || session.job == job) connections.push_back(session.connection);
  for (const auto& connection : connections)
    if (connection->is_open()) connection->read_arrived();
}

void Guests::settle() {
  if (collecting()) return;
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<Parked> fresh;
    for (Parked& parked : parked_)
      if (!std::exchange(parked.drained, true)) fresh.push_back(parked);
    if (fresh.empty()) break;
    for (const Parked& parked : fresh)
      if (sessions_.contains(parked.client)) drain(parked);  // may park more
  }
  for (auto it = parked_.begin(); it != parked_.end();) it = answer(*it) ? parked_.erase(it) : std::next(it);
  if (parked_.empty() || std::exchange(parked_timer_set_, true)) return;
  parked_timer_.expires_after(parked_.front().since + kPatience - steady_now());
  parked_timer_.async_wait([this](asio::error_code error) {
    parked_timer_set_ = false;
    if (!error) daemon_.settle();
  });
}

// True when the reservation has got its answer.
bool Guests::answer(Parked& parked) {
  auto it = sessions_.find(parked.client);
  if (it == sessions_.end() || !it->second.connection->is_open()) return true;
  policy::Time now = steady_now();
  auto answer = policy::reserve(daemon_.state, parked.client, parked.place, parked.ask, now);
  if (answer.verdict != policy::Verdict::granted && now - parked.since < kPatience) {
    bool fits_later = answer.soon;
    if (answer.verdict != policy::Verdict::unavailable)
      fits_later = answer.leaving > 0 && answer.asked <= answer.available + answer.leaving;
    if (answer.verdict != policy::Verdict::over_quota && !parked.read) {
      daemon_.gpus.request();
      return false;
    }
    if (fits_later) return false;
  }
  send_grant(parked, answer);
  if (answer.verdict != policy::Verdict::granted) {
    tell_refused(it->second, parked, answer);
    daemon_.gpus.request();
  }
  return true;
}

void Guests::reading_done(policy::Time began) {
  for (Parked& parked : parked_) parked.read |= parked.since <= began;
}

void Guests::tell_unavailable(const Parked& parked, const policy::Answer& answer) {
  const policy::Client& client = daemon_.state.clients.at(parked.client);
  const policy::Job& job = daemon_.state.jobs.at(client.job);
  daemon_.events.add(
      {"device_unavailable",
       job.name,
       job.user,
       client.command + " (process " + std::to_string(client.process.pid) + ") was refused a context: " + answer.why,
       {{"pid", client.process.pid}, {"device", parked.place.device}}});
}

void Guests::tell_refused(Session& session, const Parked& parked, const policy::Answer& answer) {
  policy::Time now = steady_now();
  ++session.over_quota_untold;
  if (session.over_quota_told && now - *session.over_quota_told < kToldEvery) return;
  session.over_quota_told = now;
  if (answer.verdict == policy::Verdict::unavailable) return tell_unavailable(parked, answer);
  const policy::Client& client = daemon_.state.clients.at(parked.client);
  const policy::Job& job = daemon_.state.jobs.at(client.job);
  const policy::Use use = policy::use_of(job, parked.place);
  bool quota = answer.verdict == policy::Verdict::over_quota;
  std::string text = client.command + " (process " + std::to_string(client.process.pid) + ") asked for " +
                     format_size(answer.asked) + " on " + policy::place_text(parked.place) +
                     " and was refused: " + job.name + " uses " + format_size(use.used);
  if (use.quota)
    text += " of its quota of " + format_size(*use.quota) + (parked.place.virtual_device ? " there" : "");
  else if (quota)
    text += ", but it was placed on another device";
  if (!quota) text += ", and " + format_size(answer.available) + " of the device are neither promised nor used";
  Json fields = {{"pid", client.process.pid},
                 {"device", parked.place.device},
                 {"asked_bytes", answer.asked},
                 {"available_bytes", answer.available},
                 {"reason", quota ? "quota" : "device"},
                 {"refusals", session.over_quota_untold}};
  if (parked.place.virtual_device) fields["virtual_device"] = *parked.place.virtual_device;
  daemon_.events.add({"over_quota", job.name, job.user, text, fields});
  session.over_quota_untold = 0;
}

}  // namespace berth::daemon
