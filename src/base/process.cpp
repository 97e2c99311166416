#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

namespace berth {
namespace {

constexpr int kMaxDepth = 1024;  // of a process tree; longer chains are cut

std::string read_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  ssize_t n;
  while (fd && (n = ::read(fd.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  return text;
}

std::string proc_path(pid_t pid, const char* file) { return "/proc/" + std::to_string(pid) + "/" + file; }

void trim_end(std::string* text) {
  while (!text->empty() && (text->back() == '\n' || text->back() == '\0')) text->pop_back();
}

template <class Function>
void for_each_number_in(const std::string& folder, Function function) {
  DIR* listing = ::opendir(folder.c_str());
  if (!listing) return;
  while (dirent* entry = ::readdir(listing))
    if (pid_t number = std::atoi(entry->d_name); number > 0) function(number);
  ::closedir(listing);
}

// The roots that run and all running processes below; children(pid, take) calls take(child) for each child.
template <class Children>
std::vector<ProcessId> closure(const std::vector<ProcessId>& roots, Children children) {
  std::vector<ProcessId> found;
  std::set<ProcessId> seen;
  auto take = [&](const ProcessStat& stat) {
    if (seen.insert(stat.id).second) found.push_back(stat.id);
  };
  for (ProcessId root : roots)
    if (auto stat = read_process(root.pid); stat && stat->id == root) take(*stat);
  for (size_t i = 0; i < found.size(); ++i)
    children(found[i].pid, [&](pid_t child) {
      if (auto stat = read_process(child)) take(*stat);
    });
  std::erase_if(found, [](ProcessId process) { return !is_running(process); });
  return found;
}

}  // namespace

std::optional<ProcessStat> read_process(pid_t pid) {
  std::string text = read_file(proc_path(pid, "stat"));
  size_t name_end = text.rfind(')');  // the name may hold blanks and parentheses
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  ProcessStat stat;
  stat.id.pid = pid;
  const char* rest = text.c_str() + name_end + 2;
  stat.state = *rest;
  char* end = nullptr;
  stat.parent = static_cast<pid_t>(std::strtol(rest + 1, &end, 10));
  // Field 3 is the state, 4 the parent, 22 the start time.
  for (int field = 5; field < 22; ++field) std::strtoll(end, &end, 10);
  stat.id.start_time = std::strtoull(end, nullptr, 10);
  return stat;
}

bool is_running(ProcessId process) {
  auto stat = read_process(process.pid);
  return stat && stat->id == process && !stat->ended();
}

std::optional<OpenProcess> open_process(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  auto before = read_process(pid);
  if (!before || before->ended()) return std::nullopt;
  OpenProcess process{before->id, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  if (!process.pidfd) return std::nullopt;
  auto after = read_process(pid);
  if (!after || after->id != process.id || after->ended()) return std::nullopt;
  return process;
}

bool signal_process(const OpenProcess& process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0) == 0;
}

std::vector<ProcessId> parent_chain(pid_t pid) {
  std::vector<ProcessId> chain;
  while (pid > 0 && chain.size() < kMaxDepth) {
    auto stat = read_process(pid);
    if (!stat) break;
    chain.push_back(stat->id);
    pid = stat->parent;
  }
  return chain;
}

std::vector<ProcessId> descendants(const std::vector<ProcessId>& roots) {
  std::multimap<pid_t, pid_t> children;
  for_each_number_in("/proc", [&](pid_t pid) {
    if (auto stat = read_process(pid)) children.emplace(stat->parent, pid);
  });
  return closure(roots, [&](pid_t parent, auto take) {
    auto [first, last] = children.equal_range(parent);
    for (auto it = first; it != last; ++it) take(it->second);
  });
}

std::vector<ProcessId> descendants_at_a_glance(const std::vector<ProcessId>& roots) {
  if (::access("/proc/thread-self/children", R_OK) != 0) return descendants(roots);
  return closure(roots, [](pid_t parent, auto take) {
    std::string tasks = proc_path(parent, "task");
    for_each_number_in(tasks, [&](pid_t thread) {
      std::string text = read_file(tasks + "/" + std::to_string(thread) + "/children");
      char* rest = text.data();
      for (long pid; (pid = std::strtol(rest, &rest, 10)) > 0;) take(static_cast<pid_t>(pid));
    });
  });
}

std::vector<std::string> cgroups_of(pid_t pid) {
  std::string text = read_file(proc_path(pid, "cgroup"));
  std::vector<std::string> paths;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));  // "HIERARCHY:CONTROLLERS:PATH"
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    size_t controllers = line.find(':'), path = line.find(':', controllers + 1);
    if (controllers == std::string_view::npos || path == std::string_view::npos) continue;
    std::string group(line.substr(path + 1));
    if (group.size() > 1 && std::find(paths.begin(), paths.end(), group) == paths.end()) paths.push_back(group);
  }
  return paths;
}

std::string short_command_of(pid_t pid) {
  std::string name = read_file(proc_path(pid, "comm"));
  trim_end(&name);
  return name;
}

std::string boot_id() {
  std::string id = read_file("/proc/sys/kernel/random/boot_id");
  trim_end(&id);
  return id;
}

}  // namespace berth
