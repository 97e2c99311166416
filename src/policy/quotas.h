// What a quota that people write means on a device, and whether a user may have it there.
#pragma once
#include "base/result.h"
#include "policy/admission.h"

namespace berth::policy {

// What the configuration allows a user on a device, for the quotas of all his jobs.
struct Allowance {
  std::optional<uint64_t> all;
  uint64_t taken = 0;
  uint64_t left() const { return all ? less(*all, taken) : ~0ull; }
};

// `but` for what one job takes (0: none).
Result<Allowance> allowance(const State& state, DeviceIndex device, uint32_t uid, JobId but, const Limits& limits);

Error over_limit(const std::string& asked, DeviceIndex device, const Allowance& allowed);

// The quota that `memory` means on a device, limits applied.
Result<std::optional<uint64_t>> quota_on(const State& state, DeviceIndex device, const std::string& memory,
                                         uint32_t uid, JobId but, const Limits& limits);

// The quota of each of `gpus` virtual devices. Without `memory` they all fit on the device when no job is there.
Result<uint64_t> virtual_quota_on(const State& state, DeviceIndex device, const std::string& memory, size_t gpus,
                                  const Allowance& allowed);

inline uint64_t could_ever_promise(const Device& device) { return less(device.total, device.headroom); }

// An error if the quota, or those of so many virtual devices, would not even be admitted on an empty device.
Status check_size(const State& state, DeviceIndex device, uint64_t quota, size_t gpus);

}  // namespace berth::policy
