// What the driver takes from the device for a request, as recorded on the real driver (docs/results): 2 MiB pages; up to
// 1 MiB several allocations share a page in steps of 512 bytes; pools grow by 32 MiB.
#pragma once
#include <cstdint>

namespace berth::shim {

inline constexpr uint64_t kPageBytes = 2u << 20;
inline constexpr uint64_t kSharedPageBytes = 1u << 20;
inline constexpr uint64_t kPoolStepBytes = 32u << 20;

// Rounded up; a size that overflows stays what it is, and the driver refuses it.
inline constexpr uint64_t round_up(uint64_t bytes, uint64_t step) {
  return bytes > ~0ull - step ? bytes : (bytes + step - 1) / step * step;
}
inline constexpr uint64_t linear_footprint(uint64_t bytes) {
  return bytes > kSharedPageBytes ? round_up(bytes, kPageBytes) : round_up(bytes, 512);
}
inline constexpr uint64_t page_footprint(uint64_t bytes) { return round_up(bytes, kPageBytes); }
inline constexpr uint64_t pool_footprint(uint64_t bytes) { return round_up(bytes, kPoolStepBytes); }

}  // namespace berth::shim
