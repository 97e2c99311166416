// Managed memory: host memory that takes device pages while the device uses it (the whole allocation at once).
#pragma once
#include "sim/process.h"

namespace berth::sim {

// To the device: counts there from now on, if there is room (where not, it stays on the host). Back: counts nowhere.
void move_managed(Range& range, Device& device, bool to_device);

// device_may_use(), and managed memory in it comes to the device.
bool device_touch(Device& device, uint64_t address, uint64_t bytes);

// The same for a kernel of the context: the memory of another card's context only with peer access to it. (Mappings, pools and
// imported memory have rules of their own, which are not kept here.)
bool kernel_touch(Context& context, uint64_t address, uint64_t bytes);

}  // namespace berth::sim
