#include "daemon/records.h"

#include "daemon/gpu_source.h"
#include "policy/placement.h"

namespace berth::daemon {
namespace {

Json process_json(const std::optional<ProcessId>& process) {
  return process ? Json{{"pid", process->pid}, {"start_time", process->start_time}} : Json(nullptr);
}

std::optional<ProcessId> read_process_json(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  return ProcessId{json.at("pid").get<pid_t>(), json.at("start_time").get<uint64_t>()};
}

// False if there is one on a device that is here no more.
bool read_virtual_devices(const policy::State& state, const Json& record, policy::Job* job) {
  job->gpus = record.value("gpus", 0u);
  for (const Json& stored : record.value("virtual_devices", Json::array())) {
    auto device = policy::find_device(state, stored.at("device").get<std::string>());
    policy::VirtualDevice& there = job->virtual_devices.emplace_back();
    there.quota = stored.at("quota_bytes").get<uint64_t>();
    there.uuid_text = stored.at("uuid").get<std::string>();
    if (!device || !parse_uuid(there.uuid_text, &there.uuid)) return false;
    there.device = *device;
  }
  return job->virtual_devices.size() == job->gpus;
}

}  // namespace

Json job_record(const policy::State& state, const policy::Job& job, const JobInfo& info) {
  Json devices = Json::array();
  for (size_t i = 0; i < job.devices.size(); ++i) {
    if (!job.devices[i].placed) continue;
    const auto& quota = job.devices[i].quota;
    devices.push_back({{"uuid", state.devices[i].uuid_text}, {"quota_bytes", quota ? Json(*quota) : Json(nullptr)}});
  }
  Json virtual_devices = Json::array();
  for (const policy::VirtualDevice& there : job.virtual_devices)
    virtual_devices.push_back(
        {{"uuid", there.uuid_text}, {"device", state.devices[there.device].uuid_text}, {"quota_bytes", there.quota}});
  return {{"id", job.id},
          {"name", job.name},
          {"user", job.user},
          {"uid", job.uid},
          {"command", job.command},
          {"priority", policy::to_string(job.priority)},
          {"weight", job.weight},
          {"max_share_ratio", job.max_share ? Json(*job.max_share) : Json(nullptr)},
          {"max_slowdown_ratio", job.max_slowdown ? Json(*job.max_slowdown) : Json(nullptr)},
          {"paused", job.state == policy::JobState::paused},
          {"strict", job.strict},
          {"default", job.is_default},
          {"devices", devices},
          {"gpus", job.gpus},
          {"virtual_devices", virtual_devices},
          {"runner", process_json(info.runner)},
          {"root", process_json(info.root)},
          {"cgroup", info.cgroup},
          {"created_at", info.created_at},
          {"started_at", info.started_at}};
}

bool read_job_record(const policy::State& state, const Json& record, policy::Job* job, JobInfo* info) try {
  job->id = record.at("id").get<uint64_t>();
  job->name = record.at("name").get<std::string>();
  job->user = record.at("user").get<std::string>();
  job->uid = record.at("uid").get<uint32_t>();
  job->command = record.at("command").get<std::vector<std::string>>();
  job->priority = policy::parse_priority(record.at("priority").get<std::string>()).value_or(policy::Priority::normal);
  job->weight = record.at("weight").get<uint32_t>();
  if (record.at("max_share_ratio").is_number()) job->max_share = record["max_share_ratio"].get<double>();
  if (auto it = record.find("max_slowdown_ratio"); it != record.end() && it->is_number())
    job->max_slowdown = it->get<double>();
  if (record.value("paused", false)) job->state = policy::JobState::paused;
  job->strict = record.at("strict").get<bool>();
  job->is_default = record.at("default").get<bool>();
  job->devices.resize(state.devices.size());
  bool placed = false;
  for (const Json& device : record.at("devices")) {
    auto index = policy::find_device(state, device.at("uuid").get<std::string>());
    if (!index) continue;
    placed = job->devices[*index].placed = true;
    if (device.at("quota_bytes").is_number()) job->devices[*index].quota = device["quota_bytes"].get<uint64_t>();
  }
  if (!read_virtual_devices(state, record, job)) return false;
  info->runner = read_process_json(record.at("runner"));
  info->root = read_process_json(record.at("root"));
  info->cgroup = record.at("cgroup").get<std::string>();
  info->created_at = record.at("created_at").get<std::string>();
  info->started_at = record.at("started_at").get<std::string>();
  return placed;
} catch (const Json::exception&) {
  return false;
}

}  // namespace berth::daemon
