#include "daemon/views.h"

#include <unistd.h>

#include <algorithm>

#include "daemon/daemon.h"
#include "daemon/users.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"
#include "policy/virtual_devices.h"
#include "wire/virtual_device.h"

namespace berth::daemon {
namespace {

constexpr const char* kKindNames[] = {"linear", "managed", "pool",     "physical",
                                      "array",  "graph",   "imported", "overhead"};
static_assert(std::size(kKindNames) == policy::kKinds);

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

uint64_t overhead_of(const policy::Bytes& bytes) { return bytes[static_cast<size_t>(policy::Kind::overhead)]; }

Json held_by(const Daemon& daemon, policy::DeviceIndex device) {
  auto holder = daemon.gpus.locked_by(device);
  return holder ? Json(text_of(*holder)) : Json(nullptr);
}

Json client_json(const Daemon& daemon, const policy::Client& client) {
  Json devices = Json::array();
  for (size_t i = 0; i < client.holdings.size(); ++i) {
    const policy::Holding& holding = client.holdings[i];
    if (policy::held(holding) == 0) continue;
    Json kinds = Json::object();
    for (size_t kind = 0; kind < policy::kKinds; ++kind)
      if (holding.bytes[kind] > 0) kinds[std::string(kKindNames[kind]) + "_bytes"] = holding.bytes[kind];
    devices.push_back({{"index", i},
                       {"used_bytes", policy::held(holding)},
                       {"overhead_bytes", overhead_of(holding.bytes)},
                       {"kinds", kinds}});
  }
  Json virtual_devices = Json::array();
  for (size_t v = 0; v < client.parts.size(); ++v)
    if (policy::held(client.parts[v]) > 0)
      virtual_devices.push_back({{"index", v},
                                 {"used_bytes", policy::held(client.parts[v])},
                                 {"overhead_bytes", overhead_of(client.parts[v])}});
  return {{"pid", client.process.pid},
          {"command", client.command},
          {"state", policy::to_string(client.state)},
          {"partly_covered", daemon.guests.is_partly_covered(client.id)},
          {"devices", devices},
          {"virtual_devices", virtual_devices}};
}

Json job_device_json(const Daemon& daemon, const policy::Job& job, policy::DeviceIndex i) {
  const policy::JobDevice& there = job.devices[i];
  uint64_t overhead = 0;
  for (const auto& [id, client] : daemon.state.clients)
    if (client.job == job.id) overhead += overhead_of(client.holdings[i].bytes);
  const TimeView time = daemon.time.view(job.id, i);
  return {{"index", i},
          {"uuid", daemon.state.devices[i].uuid_text},
          {"quota_bytes", or_null(there.quota)},
          {"gpu_share_ratio", or_null(time.second_ratio)},
          {"gpu_share_60s_ratio", or_null(time.minute_ratio)},
          {"may_run", time.may_run},
          {"waited_seconds", time.waited_seconds},
          {"throttled_seconds", time.throttled_seconds},
          {"held_by", or_null(time.held_by)},
          {"window_seconds", or_null(time.window_seconds)},
          {"company_seconds", or_null(time.company_seconds)},
          {"waiting_bound_seconds", or_null(time.waiting_bound_seconds)},
          {"used_bytes", there.used},
          {"resident_bytes", there.used},
          {"swapped_bytes", 0},
          {"pinned_bytes", nullptr},
          {"overhead_bytes", overhead},
          {"leaving_bytes", there.leaving},
          {"available_bytes", lives(job) ? Json(policy::available(daemon.state, job, i)) : Json(nullptr)}};
}

// With what they hold: memory only, since time is the device's.
Json virtual_devices_in_use(const Daemon& daemon, const policy::Job& job) {
  Json devices = virtual_devices_json(daemon.state, job);
  for (uint32_t v = 0; v < devices.size(); ++v) {
    const policy::VirtualDevice& there = job.virtual_devices[v];
    uint64_t overhead = 0;
    for (const auto& [id, client] : daemon.state.clients)
      if (client.job == job.id) overhead += overhead_of(client.parts[v]);
    devices[v].update(
        {{"used_bytes", there.used},
         {"overhead_bytes", overhead},
         {"leaving_bytes", there.leaving},
         {"available_bytes",
          lives(job) ? Json(policy::available(daemon.state, job, policy::Place(job, v))) : Json(nullptr)}});
  }
  return devices;
}

// Over the devices that have a figure.
Json mean_of(const Json& devices, const char* key) {
  double sum = 0;
  int count = 0;
  for (const Json& device : devices)
    if (device[key].is_number()) sum += device[key].get<double>(), ++count;
  return count > 0 ? Json(sum / count) : Json(nullptr);
}

// What may still run of lower work when the job begins to.
Json latency_target(const Daemon& daemon, const policy::Job& job) {
  if (job.priority == policy::Priority::low) return nullptr;
  return std::chrono::duration<double>(daemon.settings.config.scheduler.latency_target).count();
}

}  // namespace

Json virtual_devices_json(const policy::State& state, const policy::Job& job) {
  Json devices = Json::array();
  for (uint32_t v = 0; v < job.virtual_devices.size(); ++v) {
    const policy::VirtualDevice& there = job.virtual_devices[v];
    char bus_id[wire::kBusIdText];
    wire::virtual_bus_id(v, bus_id);
    devices.push_back({{"index", v},
                       {"uuid", there.uuid_text},
                       {"bus_id", bus_id},
                       {"device_index", there.device},
                       {"device_uuid", state.devices[there.device].uuid_text},
                       {"quota_bytes", there.quota}});
  }
  return devices;
}

Json job_json(const Daemon& daemon, const policy::Job& job) {
  const JobInfo& info = daemon.jobs.info(job.id);
  bool waiting = job.state == policy::JobState::waiting;
  Json devices = Json::array(), clients = Json::array();
  for (policy::DeviceIndex i = 0; i < job.devices.size(); ++i)
    if (job.devices[i].placed || job.devices[i].used > 0) devices.push_back(job_device_json(daemon, job, i));
  for (const auto& [id, client] : daemon.state.clients)
    if (client.job == job.id && !client.viewer) clients.push_back(client_json(daemon, client));
  return {{"name", job.name},
          {"user", job.user},
          {"state", policy::to_string(job.state)},
          {"priority", policy::to_string(job.priority)},
          {"weight", job.weight},
          {"max_share_ratio", or_null(job.max_share)},
          {"max_slowdown_ratio", job.priority == policy::Priority::low
                                     ? Json(nullptr)
                                     : Json(job.max_slowdown.value_or(policy::kDefaultSlowdown))},
          {"strict", job.strict},
          {"waiting_for", waiting ? Json(policy::waiting_for(daemon.state, job.id)) : Json(nullptr)},
          {"queue_position", waiting ? Json(policy::queue_position(daemon.state, job.id)) : Json(nullptr)},
          {"gpu_share_ratio", mean_of(devices, "gpu_share_ratio")},
          {"gpu_share_60s_ratio", mean_of(devices, "gpu_share_60s_ratio")},
          {"latency_target_seconds", latency_target(daemon, job)},
          {"command", job.command},
          {"root_pid", info.root ? Json(info.root->pid) : Json(nullptr)},
          {"cgroup", or_null(info.cgroup)},
          {"created_at", or_null(info.created_at)},
          {"started_at", or_null(info.started_at)},
          {"ended_at", or_null(info.ended_at)},
          {"exit_code", or_null(info.exit_code)},
          {"gpus", job.gpus > 0 ? Json(job.gpus) : Json(nullptr)},
          {"devices", devices},
          {"virtual_devices", virtual_devices_in_use(daemon, job)},
          {"clients", clients}};
}

Json ps_json(const Daemon& daemon, bool ended_too) {
  Json jobs = Json::array();
  for (const auto& [id, job] : daemon.state.jobs)
    if (ended_too || job.state != policy::JobState::ended) jobs.push_back(job_json(daemon, job));
  return {{"schema", 1}, {"jobs", jobs}};
}

Json gpus_json(const Daemon& daemon) {
  Json devices = Json::array();
  for (policy::DeviceIndex i = 0; i < daemon.state.devices.size(); ++i) {
    const policy::Device& device = daemon.state.devices[i];
    Json jobs = Json::array(), unmanaged = Json::array();
    uint64_t promised = 0, leaving = 0;
    for (const auto& [id, job] : daemon.state.jobs) {
      promised += policy::promised(job, i);
      leaving += job.devices[i].leaving;
      if (lives(job) && (job.devices[i].placed || job.devices[i].used > 0))
        jobs.push_back({{"name", job.name},
                        {"user", job.user},
                        {"quota_bytes", or_null(job.devices[i].quota)},
                        {"used_bytes", job.devices[i].used},
                        {"virtual_devices", policy::virtual_devices_on(job, i)}});
    }
    for (const UnmanagedProcess& process : daemon.gpus.unmanaged(i))
      unmanaged.push_back({{"pid", process.pid},
                           {"user", user_name(process.uid)},
                           {"command", process.command},
                           {"used_bytes", or_null(process.bytes)}});
    devices.push_back({{"index", i},
                       {"uuid", device.uuid_text},
                       {"name", device.name},
                       {"total_bytes", device.total},
                       {"used_bytes", daemon.gpus.used_bytes(i)},
                       {"managed_bytes", device.used},
                       {"unmanaged_bytes", device.unmanaged},
                       {"leaving_bytes", leaving},
                       {"promised_bytes", promised},
                       {"promisable_bytes", policy::promisable(daemon.state, i)},
                       {"headroom_bytes", device.headroom},
                       {"context_bytes", device.context_cost},
                       {"held_by", held_by(daemon, i)},
                       {"compute_mode", policy::to_string(policy::compute_mode(device))},
                       {"card_compute_mode", policy::to_string(device.card_mode)},
                       {"exclusive_to", or_null(policy::has_device(daemon.state, i))},
                       {"jobs", jobs},
                       {"unmanaged", unmanaged}});
  }
  return {{"schema", 1}, {"devices", devices}};
}

Json status_json(const Daemon& daemon) {
  Json devices = Json::array();
  for (policy::DeviceIndex i = 0; i < daemon.state.devices.size(); ++i)
    devices.push_back({{"index", i},
                       {"uuid", daemon.state.devices[i].uuid_text},
                       {"name", daemon.state.devices[i].name},
                       {"held_by", held_by(daemon, i)},
                       {"compute_mode", policy::to_string(policy::compute_mode(daemon.state.devices[i]))},
                       {"card_compute_mode", policy::to_string(daemon.state.devices[i].card_mode)}});
  auto attached = std::count_if(daemon.state.clients.begin(), daemon.state.clients.end(),
                                [](const auto& entry) { return entry.second.state == policy::ClientState::attached; });
  auto living = std::count_if(daemon.state.jobs.begin(), daemon.state.jobs.end(),
                              [](const auto& entry) { return lives(entry.second); });
  return {{"schema", 1},
          {"version", BERTH_VERSION},
          {"pid", ::getpid()},
          {"user", user_name(::getuid())},
          {"system", daemon.settings.system},
          {"socket", daemon.settings.socket},
          {"state_file", daemon.settings.state_file},
          {"config_file", or_null(daemon.settings.config.file)},
          {"driver", or_null(daemon.gpus.describe())},
          {"driver_choice", or_null(daemon.settings.driver)},
          {"no_device", daemon.gpus.no_device() ? Json(daemon.gpus.no_device()->message) : Json(nullptr)},
          {"collecting", daemon.guests.collecting()},
          {"jobs", living},
          {"waiting", daemon.state.queue.size()},
          {"clients", attached},
          {"devices", devices}};
}

}  // namespace berth::daemon
