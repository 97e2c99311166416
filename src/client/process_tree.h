// The processes below this one, read from /proc: a snapshot that may be out of date when it arrives.
#pragma once
#include <sys/types.h>

#include <vector>

namespace berth::client {

// All descendants of `root` (without it). Those below a pid of `except` and it itself are left out.
std::vector<pid_t> descendants(pid_t root, pid_t except = 0);

// The direct children of `root`, without `except`.
std::vector<pid_t> children(pid_t root, pid_t except = 0);

bool is_below(pid_t process, pid_t root);

}  // namespace berth::client
