// Processes as /proc shows them. A pid alone names nobody for long: a process is its pid and start time, on this boot.
#pragma once
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace berth {

struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks since boot
  auto operator<=>(const ProcessId&) const = default;
};

struct ProcessStat {
  ProcessId id;
  pid_t parent = 0;
  char state = '?';
  bool ended() const { return state == 'Z' || state == 'X' || state == 'x'; }
};

// Nothing if there is no such process (zombies are still there).
std::optional<ProcessStat> read_process(pid_t pid);

// True while the process runs; a zombie does not.
bool is_running(ProcessId process);

struct OpenProcess {
  ProcessId id;
  UniqueFd pidfd;
};
// A pidfd and the start time, read before and after so that both are of one process. Nothing if it has ended.
std::optional<OpenProcess> open_process(pid_t pid);

// Sends `signal` to the very process behind the pidfd.
bool signal_process(const OpenProcess& process, int signal);

// `process`, its parent, and so on up to init: each with its start time.
std::vector<ProcessId> parent_chain(pid_t pid);

// All running processes below any of `roots` (they themselves included, where running), in one walk over /proc.
std::vector<ProcessId> descendants(const std::vector<ProcessId>& roots);

// The same at the cost of these processes only, not of all on the machine; one that comes or goes meanwhile may hide
// another. For a look every now and then. (Where the kernel keeps no lists of children it is the thorough way.)
std::vector<ProcessId> descendants_at_a_glance(const std::vector<ProcessId>& roots);

// The groups that the process is in, as /proc shows them ("/system.slice/x.service"), the root left out: one where
// there is only the unified hierarchy, perhaps several different ones where controllers have their own.
std::vector<std::string> cgroups_of(pid_t pid);

// Name for people: the kernel's short name of the process; "" if there is none.
std::string short_command_of(pid_t pid);

// Changes with each boot of the machine.
std::string boot_id();

}  // namespace berth
