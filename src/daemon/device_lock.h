// One daemon a device: an abstract Unix socket named after the device's UUID, which the kernel frees with the daemon.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace berth::daemon {

// Another daemon that has a device's lock; what could not be found out is missing.
struct LockHolder {
  std::string user;    // "" = unknown, and then all is
  pid_t pid = 0;       // 0: in a process namespace that we can't see
  std::string socket;  // where it listens
};

// "bob (process 812, /run/user/1001/berth/berth.sock)", "bob", "unknown".
std::string text_of(const LockHolder& holder);

// The lock, or nothing: then *holder says who has it.
UniqueFd lock_device(const std::string& uuid, LockHolder* holder);

// Lets those go who have knocked at a lock of ours to see whose it is; without that its backlog would fill up.
void answer_knocks(const UniqueFd& lock);

}  // namespace berth::daemon
