// One daemon a device: an abstract Unix socket named after the device's UUID, which the kernel frees with the daemon.
#pragma once
#include <string>

#include "base/unique_fd.h"

namespace berth::daemon {

// The lock, or nothing: then *holder says who has it, "USER (process PID)".
UniqueFd lock_device(const std::string& uuid, std::string* holder);

}  // namespace berth::daemon
