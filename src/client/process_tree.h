// The processes below this one: a snapshot of /proc that may be out of date when it arrives. Ended ones don't count.
#pragma once
#include <sys/types.h>

#include <vector>

namespace berth::client {

// All processes below this one, but for `except` and those below it.
std::vector<pid_t> processes_below(pid_t except = 0);

// Only this process's own children.
std::vector<pid_t> own_children(pid_t except = 0);

bool is_below_us(pid_t process);

}  // namespace berth::client
