// Where a job could be placed, now or ever, and if not: who is in the way.
#pragma once
#include "base/result.h"
#include "policy/state.h"

namespace berth::policy {

// A device where a job may be placed, and what it wants there: its quota, or that of each of its virtual devices.
struct Wish {
  DeviceIndex device = 0;
  std::optional<uint64_t> quota;  // none: no promise
  uint64_t most = ~0ull;          // of all there, by the user's limit
};
using Wanted = std::vector<Wish>;

bool contains(const std::vector<DeviceIndex>& devices, DeviceIndex device);

// `gpus` is the number of virtual devices that the job asks for, 0 if it sees its device itself.

// Those of `asked` (not empty) that are not prohibited and where the quota fits an empty device; an error if all of
// them together could never hold what the job asks for.
Result<Wanted> possible(const State& state, const Wanted& asked, size_t gpus);

// The device of each of the job's virtual devices, or of the job itself; empty if there is no room. For devices of
// `closed` other jobs wait that come first.
std::vector<DeviceIndex> find_room(const State& state, const Wanted& wanted, size_t gpus,
                                   const std::vector<DeviceIndex>& closed);

// One line about a job that finds no room on any of `wanted` (not empty).
std::string no_room(const State& state, const Wanted& wanted, size_t gpus);

// The same about one device.
std::string no_room_text(const State& state, DeviceIndex device, const std::string& asked);

}  // namespace berth::policy
