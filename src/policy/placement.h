// Which devices a job may use: the one asked for, else those that CUDA_VISIBLE_DEVICES leaves it.
#pragma once
#include "base/result.h"
#include "policy/state.h"

namespace berth::policy {

// An index as nvidia-smi counts, a UUID or an unambiguous start of one.
std::optional<DeviceIndex> find_device(const State& state, std::string_view text);

// In the order of the list; as the driver reads it, the list ends at its first entry that is no device.
std::vector<DeviceIndex> visible_devices(const State& state, const std::optional<std::string>& list);

// The devices to try, at least one; error no_device otherwise.
Result<std::vector<DeviceIndex>> allowed_devices(const State& state, std::string_view device,
                                                 const std::optional<std::string>& visible);

}  // namespace berth::policy
