#include "policy/quotas.h"

#include <algorithm>

#include "base/size.h"
#include "policy/accounts.h"
#include "policy/virtual_devices.h"

namespace berth::policy {

Result<Allowance> allowance(const State& state, DeviceIndex device, uint32_t uid, JobId but, const Limits& limits) {
  Allowance result;
  if (limits.max_memory.empty()) return result;
  auto limit = parse_quota(limits.max_memory, state.devices[device].total);
  if (!limit) return limit.error();
  result.all = *limit;
  for (const auto& [id, job] : state.jobs)
    if (id != but && job.uid == uid && lives(job)) result.taken += promised(job, device);
  return result;
}

Error over_limit(const std::string& asked, DeviceIndex device, const Allowance& allowed) {
  return {"limit", "asked for " + asked + " on " + place_text(device) + "; the configuration allows this user " +
                       format_size(allowed.all.value_or(0)) + ", of which " + format_size(allowed.taken) +
                       " are taken; ask for less or end one of your jobs"};
}

Result<std::optional<uint64_t>> quota_on(const State& state, DeviceIndex device, const std::string& memory,
                                         uint32_t uid, JobId but, const Limits& limits) {
  auto quota = parse_quota(memory, state.devices[device].total);
  auto allowed = allowance(state, device, uid, but, limits);
  if (!quota || !allowed) return quota ? allowed.error() : quota.error();
  if (!allowed->all) return quota;
  if (!*quota && allowed->left() > 0) return std::optional<uint64_t>(allowed->left());  // then the limit is one
  if (quota->value_or(1) <= allowed->left()) return quota;
  return over_limit(*quota ? format_size(**quota) : "memory", device, *allowed);
}

Result<uint64_t> virtual_quota_on(const State& state, DeviceIndex device, const std::string& memory, size_t gpus,
                                  const Allowance& allowed) {
  const Device& there = state.devices[device];
  auto quota = parse_quota(memory, there.total);
  if (!quota) return quota.error();
  if (*quota) return **quota;
  return even_share(std::min(less(there.total, there.unmanaged + there.headroom), allowed.left()), gpus);
}

Status check_size(const State& state, DeviceIndex index, uint64_t quota, size_t gpus) {
  const Device& device = state.devices[index];
  size_t count = std::max<size_t>(gpus, 1);
  if (quota <= could_ever_promise(device) / count) return Ok{};
  uint64_t most = gpus ? even_share(could_ever_promise(device), count) : could_ever_promise(device);
  return Error{"usage", "asked for " + amount_text(quota, gpus) + ", but " + place_text(index) + " has " +
                            format_size(device.total) + ", of which " + format_size(device.headroom) +
                            " stay free for the driver: ask for less, at most " +
                            (gpus ? at_most_text(most) : format_size(most)) + (gpus > 1 ? " each" : "")};
}

}  // namespace berth::policy
