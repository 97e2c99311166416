// Where virtual devices are on the bus, by every interface alike: device v of a job on bus v + 1 of a PCI domain that no card
// is in, so bus ids are distinct within a job and the same in each of its processes, on every machine.
// Guest-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "wire/guest_protocol.h"

namespace berth::wire {

inline constexpr uint32_t kVirtualDomain = 0xbe00;
inline constexpr uint32_t virtual_bus(uint32_t v) { return v + 1; }
static_assert(virtual_bus(kMaxDevices - 1) <= 0xff);

inline constexpr size_t kBusIdText = 17;  // with its NUL

// As NVML writes it: "0000BE00:01:00.0" for the first one. CUDA leaves out the four zeros in front.
inline void virtual_bus_id(uint32_t v, char (&text)[kBusIdText]) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr char kFirst[kBusIdText] = "0000BE00:00:00.0";
  for (size_t i = 0; i < kBusIdText; ++i) text[i] = kFirst[i];
  text[9] = kDigits[virtual_bus(v) >> 4 & 0xf];
  text[10] = kDigits[virtual_bus(v) & 0xf];
}

}  // namespace berth::wire
