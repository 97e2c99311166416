#include "policy/virtual_devices.h"

#include <algorithm>

#include "base/size.h"

namespace berth::policy {
namespace {

constexpr uint64_t kPiece = 2ull << 20;

uint64_t times(uint64_t bytes, size_t count) { return bytes > ~0ull / count ? ~0ull : bytes * count; }

}  // namespace

std::vector<DeviceIndex> spread(std::vector<Slot> slots, size_t count) {
  for (size_t placed = 0; placed < count; ++placed) {
    Slot* best = nullptr;
    for (Slot& slot : slots) {
      if (slot.quota > std::min(slot.room, slot.most)) continue;
      if (!best || slot.room > best->room || (slot.room == best->room && slot.jobs < best->jobs)) best = &slot;
    }
    if (!best) return {};
    best->room -= best->quota, best->most -= best->quota;
    ++best->taken;
  }
  std::vector<DeviceIndex> devices;
  for (size_t round = 0; devices.size() < count; ++round)
    for (const Slot& slot : slots)
      if (slot.taken > round) devices.push_back(slot.device);
  return devices;
}

size_t count_of(const std::vector<Slot>& slots) {
  size_t count = 0;
  for (const Slot& slot : slots) count += std::min(slot.room, slot.most) / std::max<uint64_t>(slot.quota, 1);
  return count;
}

uint64_t even_share(uint64_t bytes, size_t count) { return std::max(kPiece, bytes / count / kPiece * kPiece); }

std::vector<uint32_t> virtual_devices_on(const Job& job, DeviceIndex device) {
  std::vector<uint32_t> there;
  for (uint32_t v = 0; v < job.virtual_devices.size(); ++v)
    if (job.virtual_devices[v].device == device) there.push_back(v);
  return there;
}

std::string place_text(Place place) {
  std::string device = "GPU " + std::to_string(place.device);
  return place.virtual_device ? "virtual GPU " + std::to_string(*place.virtual_device) + " (" + device + ")" : device;
}

std::string amount_text(uint64_t quota, size_t gpus) {
  if (gpus == 0) return format_size(quota);
  if (gpus == 1) return "1 virtual device of " + format_size(quota);
  return std::to_string(gpus) + " virtual devices of " + format_size(quota) + " (" + format_size(times(quota, gpus)) +
         " in all)";
}

std::string at_most_text(uint64_t bytes) {
  constexpr uint64_t kMi = 1ull << 20;
  return bytes % (kMi << 10) == 0 ? format_size(bytes) : std::to_string(bytes / kMi) + " MiB";
}

}  // namespace berth::policy
