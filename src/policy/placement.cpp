#include "policy/placement.h"

#include <algorithm>
#include <charconv>

namespace berth::policy {
namespace {

std::string describe_devices(const State& state) {
  if (state.devices.size() == 1) return "there is one device, 0 (" + state.devices[0].uuid_text + ")";
  return "there are devices 0 to " + std::to_string(state.devices.size() - 1);
}

}  // namespace

std::optional<DeviceIndex> find_device(const State& state, std::string_view text) {
  DeviceIndex index = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error == std::errc() && end == text.data() + text.size())
    return index < state.devices.size() ? std::optional(index) : std::nullopt;
  if (!text.starts_with("GPU-") || text.size() < 5) return std::nullopt;
  std::optional<DeviceIndex> found;
  for (DeviceIndex i = 0; i < state.devices.size(); ++i) {
    if (!std::string_view(state.devices[i].uuid_text).starts_with(text)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::vector<DeviceIndex> visible_devices(const State& state, const std::optional<std::string>& list) {
  std::vector<DeviceIndex> devices;
  if (!list) {
    for (DeviceIndex i = 0; i < state.devices.size(); ++i) devices.push_back(i);
    return devices;
  }
  for (std::string_view rest = *list; !rest.empty();) {
    std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    auto device = find_device(state, entry);
    if (!device) break;
    if (std::find(devices.begin(), devices.end(), *device) == devices.end()) devices.push_back(*device);
  }
  return devices;
}

Result<std::vector<DeviceIndex>> allowed_devices(const State& state, std::string_view device,
                                                 const std::optional<std::string>& visible) {
  if (state.devices.empty())
    return Error{
        "no_device",
        "the daemon sees no GPU: check that nvidia-smi works here, or set BERTH_DRIVER=sim for a simulated one"};
  if (!device.empty()) {
    auto found = find_device(state, device);
    if (!found)
      return Error{"no_device", "'" + std::string(device) + "' is no device here: " + describe_devices(state) +
                                    "; give an index or a UUID as nvidia-smi -L shows them"};
    return std::vector<DeviceIndex>{*found};
  }
  std::vector<DeviceIndex> devices = visible_devices(state, visible);
  if (devices.empty())
    return Error{"no_device", "CUDA_VISIBLE_DEVICES='" + visible.value_or("") + "' names no device: " +
                                  describe_devices(state) + "; unset it, or name one with --device"};
  return devices;
}

}  // namespace berth::policy
