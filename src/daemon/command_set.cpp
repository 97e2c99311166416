// `set`: another quota, priority, weight or share for a living job. All or nothing.
#include <cmath>

#include "base/size.h"
#include "daemon/daemon.h"
#include "daemon/users.h"
#include "daemon/views.h"
#include "policy/virtual_devices.h"

namespace berth::daemon {
namespace {

// What a process inside the job may do: only lowering.
Status check_lowering(const policy::State& state, const policy::Job& before, const policy::Job& after) {
  bool raised = after.priority > before.priority || after.weight > before.weight ||
                after.max_share.value_or(1) > before.max_share.value_or(1) ||
                after.max_slowdown.value_or(policy::kDefaultSlowdown) <
                    before.max_slowdown.value_or(policy::kDefaultSlowdown);
  for (size_t i = 0; i < state.devices.size(); ++i)
    raised |= after.devices[i].quota.value_or(~0ull) > before.devices[i].quota.value_or(~0ull);
  if (!raised) return Ok{};
  return Error{"not_permitted", "from inside the job its limits can only be lowered; raise them from outside"};
}

std::string quota_text(std::optional<uint64_t> quota) { return quota ? format_size(*quota) : "none"; }

std::string share_text(std::optional<double> ratio) {
  return ratio ? std::to_string(std::lround(*ratio * 100)) + "%" : "none";
}

std::string slowdown_text(std::optional<double> ratio) { return ratio ? Json(*ratio).dump() : "usual"; }

// Back to the quotas of `before`; what was granted and released since stays.
void restore_limits(policy::Job& job, const policy::Job& before) {
  for (size_t i = 0; i < before.devices.size(); ++i) job.devices[i].quota = before.devices[i].quota;
  for (size_t v = 0; v < before.virtual_devices.size(); ++v)
    job.virtual_devices[v].quota = before.virtual_devices[v].quota;
  job.priority = before.priority;
  job.weight = before.weight;
  job.max_share = before.max_share;
  job.max_slowdown = before.max_slowdown;
}

// The event of what is different now; none if nothing is.
void tell_changes(Events& events, const policy::Job& before, const policy::Job& after) {
  std::string text;
  Json fields = Json::object();
  auto changed = [&](const std::string& what, const std::string& from, const std::string& to) {
    text += (text.empty() ? "" : ", ") + what + " " + from + " -> " + to;
  };
  for (policy::DeviceIndex i = 0; i < after.devices.size(); ++i) {
    const auto& to = after.devices[i].quota;
    if (before.devices[i].quota == to) continue;
    std::vector<uint32_t> there = policy::virtual_devices_on(after, i);
    auto shown = [&](const policy::Job& job) {
      return there.empty() ? quota_text(job.devices[i].quota) : format_size(job.virtual_devices[there[0]].quota);
    };
    changed((there.empty() ? "quota on " : "quota of each virtual GPU on ") + policy::place_text(i), shown(before),
            shown(after));
    fields["devices"].push_back({{"index", i}, {"quota_bytes", to ? Json(*to) : Json(nullptr)}});
  }
  if (before.priority != after.priority) {
    changed("priority", policy::to_string(before.priority), policy::to_string(after.priority));
    fields["priority"] = policy::to_string(after.priority);
  }
  if (before.weight != after.weight) {
    changed("weight", std::to_string(before.weight), std::to_string(after.weight));
    fields["weight"] = after.weight;
  }
  if (before.max_share != after.max_share) {
    changed("share of GPU time", share_text(before.max_share), share_text(after.max_share));
    fields["max_share_ratio"] = after.max_share ? Json(*after.max_share) : Json(nullptr);
  }
  if (before.max_slowdown != after.max_slowdown) {
    changed("slowdown", slowdown_text(before.max_slowdown), slowdown_text(after.max_slowdown));
    fields["max_slowdown_ratio"] = after.max_slowdown ? Json(*after.max_slowdown) : Json(nullptr);
  }
  if (!text.empty()) events.add({"job_changed", after.name, after.user, after.name + " changed: " + text, fields});
}

}  // namespace

void Commands::set(const SessionPtr& session, const Json& request) {
  bool inside = false;
  auto id = own_job(session, request, &inside);
  if (!id) return fail(session, id.error());
  policy::Job& job = daemon_.state.jobs.at(*id);
  if (job.state == policy::JobState::ended)
    return fail(session, {"unknown_job", "the job " + job.name + " has ended already"});
  if (job.state == policy::JobState::waiting)
    return fail(session,
                {"refused", "the job " + job.name + " still waits for room; end it with berth kill and start it anew"});
  auto limits =
      limits_of(daemon_.settings.config, job.user, group_names(job.user), daemon_.settings.system, session->uid() == 0);
  const policy::Job before = job;
  auto undo = [&](const Error& error) {
    restore_limits(job, before);
    fail(session, error);
  };
  if (auto memory = request.find("memory"); memory != request.end()) {
    std::string text = memory->is_null()              ? ""
                       : memory->is_number_unsigned() ? std::to_string(memory->get<uint64_t>())
                                                      : memory->get<std::string>();
    if (auto status = policy::set_memory(daemon_.state, *id, text, limits); !status) return undo(status.error());
  }
  if (auto text = request.find("priority"); text != request.end()) {
    auto priority = policy::parse_priority(text->get<std::string>());
    if (!priority)
      return undo(
          {"usage", "'" + text->get<std::string>().substr(0, 40) + "' is no priority: give high, normal or low"});
    if (auto status = policy::check_priority(*priority, limits); !status) return undo(status.error());
    job.priority = *priority;
  }
  if (auto weight = request.find("weight"); weight != request.end()) {
    if (!weight->is_number_integer()) return undo({"usage", "a weight is a whole number from 1 to 10000"});
    if (auto status = policy::check_weight(weight->get<int64_t>(), limits); !status) return undo(status.error());
    job.weight = static_cast<uint32_t>(weight->get<int64_t>());
  }
  if (auto share = request.find("max_share_ratio"); share != request.end()) {
    std::optional<double> ratio;
    if (!share->is_null()) ratio = share->get<double>();
    if (auto status = policy::check_max_share(ratio); !status) return undo(status.error());
    job.max_share = ratio;
  }
  if (auto slowdown = request.find("max_slowdown_ratio"); slowdown != request.end()) {
    std::optional<double> ratio;
    if (!slowdown->is_null()) ratio = slowdown->get<double>();
    if (auto status = policy::check_max_slowdown(ratio); !status) return undo(status.error());
    job.max_slowdown = ratio;
  }
  if (inside)
    if (auto status = check_lowering(daemon_.state, before, job); !status) return undo(status.error());

  daemon_.time.changed();
  daemon_.jobs.save(*id, [this, session, id = *id, before](Status saved) {
    auto it = daemon_.state.jobs.find(id);
    if (it == daemon_.state.jobs.end()) return fail(session, {"unknown_job", "the job has ended meanwhile"});
    if (saved) {
      tell_changes(daemon_.events, before, it->second);
      return reply(session, job_json(daemon_, it->second));
    }
    restore_limits(it->second, before);
    daemon_.time.changed();
    fail(session, saved.error());
    daemon_.settle();
  });
}

}  // namespace berth::daemon
