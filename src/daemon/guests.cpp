#include "daemon/guests.h"

#include <algorithm>
#include <cstring>

#include "base/size.h"
#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "policy/accounts.h"
#include "policy/virtual_devices.h"

namespace berth::daemon {
namespace {

using policy::Kind;

constexpr policy::Time kReportPatience = std::chrono::seconds(5);

// Texts from guests end where they like and may hold anything; people get printable ASCII.
template <size_t N>
std::string clean_text(const char (&text)[N]) {
  std::string clean;
  for (size_t i = 0; i < N && text[i]; ++i) clean += text[i] >= 32 && text[i] < 127 ? text[i] : '?';
  return clean;
}

template <class Message>
bool read_message(std::string_view packet, Message* message) {
  if (!wire::check_message<Message>(packet.data(), packet.size())) return false;
  std::memcpy(message, packet.data(), sizeof *message);
  return true;
}

static_assert(policy::kKinds == static_cast<size_t>(wire::Kind::count));
static_assert(static_cast<int>(Kind::managed) == static_cast<int>(wire::Kind::managed));
static_assert(static_cast<int>(Kind::imported) == static_cast<int>(wire::Kind::imported));
static_assert(static_cast<int>(Kind::overhead) == static_cast<int>(wire::Kind::overhead));
static_assert(policy::kMaxVirtualDevices == wire::kMaxDevices);
Kind kind_of(wire::Kind kind) { return static_cast<Kind>(kind); }

std::vector<std::optional<policy::Place>> places_of(const policy::Job& job, const std::vector<int>& devices) {
  std::vector<std::optional<policy::Place>> places;
  for (uint32_t v = 0; v < job.virtual_devices.size(); ++v) places.push_back(policy::Place(job, v));
  if (!places.empty()) return places;
  for (int device : devices)
    places.push_back(device >= 0 ? std::optional<policy::Place>(static_cast<policy::DeviceIndex>(device))
                                 : std::nullopt);
  return places;
}

}  // namespace

Guests::Guests(Daemon& daemon) : daemon_(daemon), report_timer_(daemon.loop), parked_timer_(daemon.loop) {}

void Guests::restore(const std::vector<ClientId>& clients) {
  unreported_.insert(clients.begin(), clients.end());
  if (unreported_.empty()) return;
  report_timer_.expires_after(kReportPatience);
  report_timer_.async_wait([this](asio::error_code error) {
    if (error) return;
    unreported_.clear();
    daemon_.settle();
  });
}

void Guests::refuse(const std::shared_ptr<Connection>& connection, wire::RefusedWhy why) {
  auto message = wire::make_message<wire::Refused>();
  message.why = why;
  message.daemon_major = wire::kMajor;
  connection->send_message(message);
  connection->close_after_sending();
}

void Guests::malformed(const std::shared_ptr<Connection>& connection, const std::string& what, ClientId client) {
  // One event a second at most: noise must not push out what matters.
  policy::Time now = steady_now();
  if (++malformed_ == 1 || now - malformed_told_ >= std::chrono::seconds(1)) {
    malformed_told_ = now;
    std::string job;
    if (auto it = daemon_.state.clients.find(client); it != daemon_.state.clients.end())
      job = daemon_.state.jobs.at(it->second.job).name;
    daemon_.events.add({"malformed_client",
                        job,
                        "",
                        "process " + std::to_string(connection->peer().pid) + " was disconnected: " + what,
                        {{"pid", connection->peer().pid}, {"so_far", malformed_}}});
  }
  connection->close();
}

void Guests::hello(const std::shared_ptr<Connection>& connection, std::string_view packet) {
  wire::Hello hello;
  if (!read_message(packet, &hello) || hello.device_count > wire::kMaxDevices ||
      (hello.role != wire::Role::client && hello.role != wire::Role::viewer)) {
    refuse(connection, wire::RefusedWhy::malformed);
    return malformed(connection, "its hello makes no sense");
  }
  const Peer& peer = connection->peer();
  auto process = open_process(peer.pid);
  if (!process) return refuse(connection, wire::RefusedWhy::unmanaged);
  auto job = daemon_.job_of(parent_chain(peer.pid), cgroups_of(peer.pid));
  if (!job && daemon_.settings.system) {
    auto own = daemon_.jobs.default_job(peer.uid);
    if (own) job = *own;
  }
  if (!job) return refuse(connection, wire::RefusedWhy::unmanaged);

  std::vector<int> devices;
  bool any = hello.device_count == 0;
  for (uint32_t i = 0; i < hello.device_count; ++i) {
    int found = -1;
    for (policy::DeviceIndex d = 0; d < daemon_.state.devices.size(); ++d)
      if (std::memcmp(daemon_.state.devices[d].uuid.data(), hello.devices[i].bytes, sizeof hello.devices[i].bytes) == 0)
        found = static_cast<int>(d);
    devices.push_back(found);
    any |= found >= 0;
  }
  if (!any) return refuse(connection, wire::RefusedWhy::no_device);
  attach(connection, hello, std::move(*process), *job, std::move(devices));
}

void Guests::attach(const std::shared_ptr<Connection>& connection, const wire::Hello& hello, OpenProcess process,
                    policy::JobId job, std::vector<int> devices) {
  auto page = Page::create();
  if (!page) {
    log_line(page.error().message);
    return refuse(connection, wire::RefusedWhy::limit);
  }
  policy::Time now = steady_now();
  bool viewer = hello.role == wire::Role::viewer;
  auto known = std::find_if(daemon_.state.clients.begin(), daemon_.state.clients.end(), [&](const auto& entry) {
    return entry.second.process == process.id && entry.second.viewer == viewer &&
           entry.second.state != policy::ClientState::leaving;
  });
  bool again = known != daemon_.state.clients.end();
  // One that attaches over and over must not fill the events.
  bool tell = !viewer && !(again && known->second.state == policy::ClientState::attached &&
                           now - known->second.since < std::chrono::seconds(1));
  policy::Client& client = again ? known->second : policy::add_client(daemon_.state, job, process.id, viewer, now);
  ClientId id = client.id;
  policy::set_attached(daemon_.state, id, now);
  client.command = short_command_of(process.id.pid);

  Session& session = sessions_[id];
  if (session.connection) {  // the older connection of the same process and role
    session.connection->on_closed = nullptr;
    session.connection->close();
  }
  session = Session{};
  session.connection = connection;
  session.client = id;
  session.job = client.job;
  session.page = std::move(*page);
  session.places = places_of(daemon_.state.jobs.at(client.job), devices);
  session.may_report = again;
  fill_page(session);

  auto welcome = wire::make_message<wire::Welcome>(hello.header.sequence);
  welcome.client_id = id;
  welcome.page_size = sizeof(wire::DaemonPage);
  welcome.restarted = collecting() ? 1 : 0;
  connection->on_packet = [this, id](std::string_view text) { packet(sessions_.at(id), text); };
  connection->after_read = [this] { daemon_.settle(); };
  connection->on_closed = [this, id, weak = std::weak_ptr(connection)] { closed(id, weak.lock()); };
  int activity = -1;
  if (!viewer)
    activity = daemon_.time.arrived({id, client.job, connection, session.page.get(), std::move(devices),
                                     (hello.features & wire::kFeatureActivity) != 0});
  connection->send_message(welcome, session.page.reader(), activity);
  session.page.give_away();

  if (!again) {
    ProcessId pid = process.id;
    daemon_.processes.watch(std::move(process), [this, pid] { process_ended(pid); });
    if (!viewer) daemon_.disk.run([this, pid, job] { return daemon_.store.save_client({pid, job}); }, [](Status) {});
  }
  const policy::Job& owner = daemon_.state.jobs.at(client.job);
  if (tell)
    daemon_.events.add(
        {"client_attached",
         owner.name,
         owner.user,
         client.command + " (process " + std::to_string(client.process.pid) + ") attached" + (again ? " again" : ""),
         {{"pid", client.process.pid},
          {"driver_version", hello.driver_version},
          {"shim_version", clean_text(hello.shim_version)},
          {"unknown_symbols", hello.unknown_symbols},
          {"missing_symbols", hello.missing_symbols}}});
  if (viewer) return;
  daemon_.gpus.request();
  daemon_.settle();  // its gate must not wait for its next packet
}

std::optional<policy::Place> Guests::place_of(const Session& session, uint32_t number) const {
  return number < session.places.size() ? session.places[number] : std::nullopt;
}

void Guests::packet(Session& session, std::string_view packet) {
  wire::Header header;
  if (packet.size() < sizeof header) return malformed(session.connection, "a packet is cut short", session.client);
  std::memcpy(&header, packet.data(), sizeof header);
  auto handled = [&]<class Message>(void (Guests::*handler)(Session&, const Message&)) {
    Message message;
    if (!read_message(packet, &message))
      return malformed(session.connection, "a packet makes no sense", session.client);
    (this->*handler)(session, message);
  };
  switch (header.type) {
    case wire::MessageType::holdings:
      return handled(&Guests::on_holdings);
    case wire::MessageType::reserve:
      return handled(&Guests::on_reserve);
    case wire::MessageType::release:
      return handled(&Guests::on_release);
    case wire::MessageType::refresh:
      return handled(&Guests::on_refresh);
    case wire::MessageType::notice:
      return handled(&Guests::on_notice);
    case wire::MessageType::mapped:
      return handled(&Guests::on_mapped);
    case wire::MessageType::active:
      return handled(&Guests::on_active);
    default:
      return malformed(session.connection, "a packet is of no known kind", session.client);
  }
}

void Guests::on_holdings(Session& session, const wire::Holdings& message) {
  // "Nothing at all" is a single last one without bytes, on whatever device.
  auto place = place_of(session, message.device);
  if (message.bytes > 0 && (!place || message.kind >= wire::Kind::count))
    return malformed(session.connection, "its holdings are on no device", session.client);
  if (!session.may_report) return;
  if (!std::exchange(session.reporting, true)) policy::begin_holdings(daemon_.state, session.client);
  if (message.bytes > 0)
    policy::add_holding(daemon_.state, session.client, *place, kind_of(message.kind), message.bytes, steady_now());
  if (message.last) end_report(session);
}

// The report is over; whoever has never sent one holds nothing (a new program in an old process, after exec).
void Guests::end_report(Session& session) {
  if (!std::exchange(session.may_report, false)) return;
  if (!std::exchange(session.reporting, false)) policy::begin_holdings(daemon_.state, session.client);
  reported(session.client);
  daemon_.gpus.request();
}

void Guests::reported(ClientId client) {
  if (unreported_.erase(client) > 0 && unreported_.empty()) report_timer_.cancel();
}

void Guests::on_release(Session& session, const wire::Release& message) {
  auto place = place_of(session, message.device);
  if (!place || message.kind >= wire::Kind::count)
    return malformed(session.connection, "it releases memory of no device", session.client);
  end_report(session);
  policy::release(daemon_.state, session.client, *place, kind_of(message.kind), message.bytes, steady_now());
  if (message.kind == wire::Kind::overhead && !daemon_.state.jobs.at(session.job).devices[place->device].placed)
    daemon_.time.changed();
}

void Guests::on_refresh(Session& session, const wire::Refresh& message) {
  auto place = place_of(session, message.device);
  if (!place) return malformed(session.connection, "it names no device", session.client);
  end_report(session);
  daemon_.state.clients.at(session.client).holdings[place->device].refreshed = true;
  daemon_.gpus.request();
}

void Guests::on_notice(Session& session, const wire::Notice& message) {
  const policy::Client& client = daemon_.state.clients.at(session.client);
  const policy::Job& job = daemon_.state.jobs.at(client.job);
  std::string who = client.command + " (process " + std::to_string(client.process.pid) + ")",
              name = clean_text(message.text);
  policy::Time now = steady_now();
  if (now - session.noticed < std::chrono::seconds(1) && session.notices >= 10) return;  // enough for now
  if (now - session.noticed >= std::chrono::seconds(1)) session.noticed = now, session.notices = 0;
  ++session.notices;
  Json fields = {{"pid", client.process.pid}, {"value", message.value}, {"name", name}};
  std::string where;  // only told where the program has several
  if (auto place = place_of(session, message.device); place && place->virtual_device) {
    where = " on " + policy::place_text(*place);
    fields["virtual_device"] = *place->virtual_device;
  }
  switch (message.code) {
    case wire::NoticeCode::partly_covered:
      if (!std::exchange(session.partly_covered, true))
        daemon_.events.add({"partly_covered", job.name, job.user,
                            who + " uses driver functions that berth doesn't know, first " + name +
                                "; its quota is checked through NVML there",
                            fields});
      return;
    case wire::NoticeCode::driver_full:
      daemon_.gpus.request();
      return daemon_.events.add(
          {"driver_full", job.name, job.user,
           "the driver had no " + format_size(message.value) + where + " for " + who + " although they were granted",
           fields});
    case wire::NoticeCode::over_quota:
      return daemon_.events.add(
          {"over_quota", job.name, job.user,
           who + " was refused " + format_size(message.value) + where + " while the daemon was away", fields});
  }
}

void Guests::on_mapped(Session& session, const wire::Mapped&) { daemon_.time.mapped(session.client); }

void Guests::on_active(Session& session, const wire::Active&) { daemon_.time.active(session.client); }

void Guests::closed(ClientId id, const std::shared_ptr<Connection>& connection) {
  auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second.connection != connection) return;
  daemon_.time.departed(id);
  sessions_.erase(it);
  std::erase_if(parked_, [id](const Parked& parked) { return parked.client == id; });
  policy::Client& client = daemon_.state.clients.at(id);
  if (client.viewer) {
    daemon_.state.clients.erase(id);
  } else if (client.state == policy::ClientState::attached) {
    // Its process lives, or its pidfd will tell. NVML says whether it still holds anything (after exec it doesn't).
    policy::set_silent(daemon_.state, id, steady_now());
    daemon_.gpus.request();
  }
  daemon_.settle();
}

void Guests::process_ended(ProcessId process) {
  std::vector<ClientId> ended;
  for (const auto& [id, client] : daemon_.state.clients)
    if (client.process == process && client.state != policy::ClientState::leaving) ended.push_back(id);
  for (ClientId id : ended) {
    daemon_.time.departed(id);
    if (auto session = sessions_.extract(id)) {
      session.mapped().connection->on_closed = nullptr;
      session.mapped().connection->close();
    }
    std::erase_if(parked_, [id](const Parked& parked) { return parked.client == id; });
    reported(id);
    const policy::Client client = daemon_.state.clients.at(id);
    const policy::Job& job = daemon_.state.jobs.at(client.job);
    if (!client.viewer)
      daemon_.events.add({"client_lost",
                          job.name,
                          job.user,
                          client.command + " (process " + std::to_string(client.process.pid) + ") ended",
                          {{"pid", client.process.pid}}});
    policy::client_died(daemon_.state, id, steady_now());
    daemon_.disk.run([this, process] { return daemon_.store.remove_client(process); }, [](Status) {});
  }
  if (ended.empty()) return;
  pids_stale_ = true;
  daemon_.gpus.request();
  daemon_.settle();
}

}  // namespace berth::daemon
