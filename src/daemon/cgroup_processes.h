// The processes of a container, which is known by its cgroup.
#pragma once
#include <string>
#include <vector>

#include "base/process.h"

namespace berth::daemon {

// Those in `cgroup` ("/a/b") or a group below it. `mount` is where cgroups are mounted: the unified hierarchy itself, or a
// folder of hierarchies, one a controller and perhaps the unified one beside them; then the group is sought in each.
std::vector<ProcessId> processes_of_cgroup(const std::string& mount, const std::string& cgroup);

}  // namespace berth::daemon
