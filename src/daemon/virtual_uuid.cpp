#include "daemon/virtual_uuid.h"

#include <random>

namespace berth::daemon {
namespace {

// As NVML writes it.
std::string uuid_text(const policy::Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 0xf];
  }
  return text;
}

}  // namespace

void name_virtual_devices(policy::Job& job) {
  std::random_device random;
  for (policy::VirtualDevice& device : job.virtual_devices) {
    if (!device.uuid_text.empty()) continue;
    for (uint8_t& byte : device.uuid) byte = static_cast<uint8_t>(random());
    device.uuid[6] = static_cast<uint8_t>((device.uuid[6] & 0x0f) | 0x40);  // version 4
    device.uuid[8] = static_cast<uint8_t>((device.uuid[8] & 0x3f) | 0x80);  // the variant of RFC 4122
    device.uuid_text = uuid_text(device.uuid);
  }
}

}  // namespace berth::daemon
