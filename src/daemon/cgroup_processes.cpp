#include "daemon/cgroup_processes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace berth::daemon {
namespace {

constexpr int kDeepest = 8;

void collect(const std::string& folder, int depth, std::vector<ProcessId>* found) {
  std::ifstream processes(folder + "/cgroup.procs");
  for (pid_t pid; processes >> pid;)
    if (auto stat = read_process(pid); stat && !stat->ended()) found->push_back(stat->id);
  if (depth == 0) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) collect(entry.path(), depth - 1, found);
}

}  // namespace

std::vector<ProcessId> processes_of_cgroup(const std::string& mount, const std::string& cgroup) {
  std::vector<ProcessId> found;
  std::error_code ignored;
  // A hierarchy has the file in its root. What is below that are groups, no hierarchies: "/a/b" must not be taken for "/b".
  if (std::filesystem::exists(mount + "/cgroup.procs", ignored)) {
    collect(mount + cgroup, kDeepest, &found);
  } else {
    for (const auto& hierarchy : std::filesystem::directory_iterator(mount, ignored))
      collect(hierarchy.path().string() + cgroup, kDeepest, &found);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace berth::daemon
