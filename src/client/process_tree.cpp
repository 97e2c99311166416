#include "client/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "base/unique_fd.h"

namespace berth::client {
namespace {

// 0 if there is no such process.
pid_t parent_of(pid_t process) {
  UniqueFd fd(::open(("/proc/" + std::to_string(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  ssize_t length = fd ? ::read(fd.get(), text, sizeof text - 1) : -1;
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* behind_name = std::strrchr(text, ')');  // the name may hold anything, parentheses too
  char state;
  int parent = 0;
  if (!behind_name || std::sscanf(behind_name + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

std::multimap<pid_t, pid_t> processes_by_parent() {
  std::multimap<pid_t, pid_t> result;
  DIR* folder = ::opendir("/proc");
  if (!folder) return result;
  while (dirent* entry = ::readdir(folder)) {
    pid_t process = std::atoi(entry->d_name);
    if (process <= 0) continue;
    if (pid_t parent = parent_of(process)) result.emplace(parent, process);
  }
  ::closedir(folder);
  return result;
}

}  // namespace

std::vector<pid_t> children(pid_t root, pid_t except) {
  std::vector<pid_t> result;
  auto by_parent = processes_by_parent();
  auto [from, to] = by_parent.equal_range(root);
  for (auto it = from; it != to; ++it)
    if (it->second != except) result.push_back(it->second);
  return result;
}

std::vector<pid_t> descendants(pid_t root, pid_t except) {
  auto by_parent = processes_by_parent();
  std::vector<pid_t> result{root};
  for (size_t i = 0; i < result.size(); ++i) {
    auto [from, to] = by_parent.equal_range(result[i]);
    for (auto it = from; it != to; ++it)
      if (it->second != except) result.push_back(it->second);
  }
  result.erase(result.begin());
  return result;
}

bool is_below(pid_t process, pid_t root) {
  for (int depth = 0; process > 1 && depth < 1000; ++depth) {
    process = parent_of(process);
    if (process == root) return true;
  }
  return false;
}

}  // namespace berth::client
