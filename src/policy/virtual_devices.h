// Which devices the virtual devices of a job (`berth run -g N`) lie on, and how large they are when nobody says.
#pragma once
#include "policy/state.h"

namespace berth::policy {

// A device on which virtual devices of `quota` bytes each may be placed.
struct Slot {
  DeviceIndex device = 0;
  uint64_t quota = 0;
  uint64_t room = 0;      // for quotas there, by what is promised
  uint64_t most = ~0ull;  // the same by the user's limit
  size_t jobs = 0;
  size_t taken = 0;  // by spread()
};

// The device of each of `count` virtual devices: the next always where most room is left, then where the fewest jobs
// are, then by the order of `slots`. The first ones lie on different devices, in the order of `slots`, and so on round
// by round. Empty if there is no room for all.
std::vector<DeviceIndex> spread(std::vector<Slot> slots, size_t count);

// How many could be placed at most.
size_t count_of(const std::vector<Slot>& slots);

// An equal part of `bytes` for each of `count` virtual devices: whole pieces of 2 MiB, at least one.
uint64_t even_share(uint64_t bytes, size_t count);

// The job's virtual devices on a device.
std::vector<uint32_t> virtual_devices_on(const Job& job, DeviceIndex device);

// "GPU 0"; "virtual GPU 2 (GPU 0)".
std::string place_text(Place place);

// "8 GiB"; with virtual devices "4 virtual devices of 8 GiB (32 GiB in all)".
std::string amount_text(uint64_t quota, size_t gpus);

// Rounded down, and exact: for people to write down as they read it.
std::string at_most_text(uint64_t bytes);

}  // namespace berth::policy
