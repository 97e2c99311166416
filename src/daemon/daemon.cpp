#include "daemon/daemon.h"

#include <cstring>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "wire/control.h"

namespace berth::daemon {
namespace {

constexpr size_t kMaxConnections = 4096, kMaxConnectionsOfUser = 2048;
constexpr size_t kMaxQueuedBytes = 4u << 20;  // towards one peer
constexpr policy::Time kNewcomerPatience = std::chrono::seconds(10);

}  // namespace

Daemon::Daemon(asio::io_context& the_loop, Settings the_settings, std::unique_ptr<GpuSource> source)
    : loop(the_loop),
      settings(std::move(the_settings)),
      processes(loop),
      disk(loop),
      nvml(loop),
      events(store, disk, settings.config.keep_events),
      jobs(*this),
      guests(*this),
      gpus(*this, std::move(source)),
      time(*this),
      commands(*this),
      idle_timer_(loop),
      newcomers_timer_(loop) {}

// What the workers still do uses the parts below; it must be over before any of them goes.
Daemon::~Daemon() {
  nvml.finish();
  disk.finish();
}

Status Daemon::open() {
  // The lock of the socket comes first: it keeps a second daemon off the store. Then the store, since without it nobody
  // can be served. Then the socket, before the devices: a driver may take seconds, and whoever comes meanwhile shall wait.
  if (auto status = listener_.lock(settings.socket); !status) return status;
  if (auto status = store.open(settings.state_file, boot_id()); !status) return status;
  auto stored = store.load_events(settings.config.keep_events);
  if (!stored) return stored.error();
  events.restore(std::move(*stored));
  auto accept = [this](UniqueFd socket) { serve(std::move(socket)); };
  if (auto status = listener_.listen(loop, settings.system, accept); !status) return status;
  gpus.open();
  if (auto status = jobs.restore(); !status) return status;
  events.add({"daemon_started",
              "",
              "",
              std::string("berthd ") + BERTH_VERSION + " started" +
                  (jobs.any_living() ? " and goes on with the jobs of its predecessor" : ""),
              {{"pid", ::getpid()}, {"version", BERTH_VERSION}, {"driver", gpus.describe()}}});
  if (jobs.any_living()) gpus.request();  // what the jobs hold is not unmanaged
  settle();
  return Ok{};
}

void Daemon::stop() {
  if (std::exchange(stopped_, true)) return;
  listener_.close();
  loop.stop();
}

bool Daemon::too_many(const Peer& peer) const {
  auto it = connections_of_.find(peer.uid);
  return connections_ >= kMaxConnections ||
         (it != connections_of_.end() && it->second >= kMaxConnectionsOfUser && peer.uid != 0);
}

void Daemon::serve(UniqueFd socket) {
  auto connection = std::make_shared<Connection>(loop, std::move(socket), kMaxQueuedBytes);
  const uid_t uid = connection->peer().uid;
  if (too_many(connection->peer())) {
    auto message = wire::make_message<wire::Refused>();
    message.why = wire::RefusedWhy::limit;
    message.daemon_major = wire::kMajor;
    connection->send_message(message);
    return connection->close();
  }
  ++connections_;
  ++connections_of_[uid];
  connection->on_gone = [this, uid] {
    --connections_;
    if (--connections_of_[uid] == 0) connections_of_.erase(uid);
  };
  newcomers_[connection.get()] = {connection, steady_now()};
  if (newcomers_.size() == 1) sweep_newcomers();
  connection->on_closed = [this, raw = connection.get()] { newcomers_.erase(raw); };
  connection->on_packet = [this, raw = connection.get()](std::string_view packet) {
    auto newcomer = newcomers_.extract(raw);
    if (newcomer) first_packet(newcomer.mapped().connection, packet);
  };
  connection->start();
}

void Daemon::first_packet(const std::shared_ptr<Connection>& connection, std::string_view packet) {
  connection->on_closed = nullptr;
  wire::Header header{};
  if (packet.size() >= sizeof header) std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic == wire::kMagic && header.type == wire::MessageType::control_request) {
    if (header.major == wire::kMajor) return commands.open(connection, packet);
    std::string text = Json{{"error",
                             {{"code", "version"},
                              {"message", "this daemon speaks version " + std::to_string(wire::kMajor) +
                                              " of the protocol and the command " + std::to_string(header.major) +
                                              ": use commands and daemon of one release"}}}}
                           .dump();
    connection->send(wire::control_packet(wire::MessageType::control_reply, text));
    return connection->close_after_sending();
  }
  if (header.magic == wire::kMagic && header.type == wire::MessageType::hello && header.major != wire::kMajor) {
    auto message = wire::make_message<wire::Refused>(header.sequence);
    message.why = wire::RefusedWhy::version;
    message.daemon_major = wire::kMajor;
    connection->send_message(message);
    return connection->close_after_sending();
  }
  guests.hello(connection, packet);
  settle();
}

// Connections that never say what they are must not pile up. The timer runs only while there are any.
void Daemon::sweep_newcomers() {
  newcomers_timer_.expires_after(kNewcomerPatience);
  newcomers_timer_.async_wait([this](asio::error_code error) {
    if (error) return;
    policy::Time now = steady_now();
    for (auto& [raw, newcomer] : newcomers_)
      if (now - newcomer.since >= kNewcomerPatience) newcomer.connection->close();
    if (!newcomers_.empty()) sweep_newcomers();
  });
}

std::optional<policy::JobId> Daemon::job_of(const std::vector<ProcessId>& chain,
                                            const std::vector<std::string>& cgroups) const {
  if (auto job = jobs.job_of(chain, cgroups)) return job;
  // Clients whose parents have gone (known before a restart, or orphans) lead to their job, too.
  for (ProcessId process : chain)
    for (const auto& [id, client] : state.clients)
      if (client.process == process && client.state != policy::ClientState::leaving &&
          state.jobs.at(client.job).state != policy::JobState::ended)
        return client.job;
  return std::nullopt;
}

void Daemon::settle() {
  if (settling_) {
    settle_again_ = true;
    return;
  }
  settling_ = true;
  do {
    settle_again_ = false;
    guests.settle();
    jobs.end_default_jobs();
    jobs.admit_waiting();
  } while (settle_again_);
  settling_ = false;
  time.settle();
  guests.update_pages();
  gpus.settle();
  set_idle_timer();
}

void Daemon::set_idle_timer() {
  bool idle = !settings.system && settings.idle_seconds > 0 && !jobs.any_living() && !jobs.any_waiting();
  if (idle == idle_timer_set_) return;
  idle_timer_set_ = idle;
  if (!idle) {
    idle_timer_.cancel();
    return;
  }
  idle_timer_.expires_after(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(settings.idle_seconds)));
  idle_timer_.async_wait([this](asio::error_code error) {
    if (!error && idle_timer_set_) stop();
  });
}

}  // namespace berth::daemon
