#include "client/process_tree.h"

#include <unistd.h>

#include <algorithm>

#include "base/process.h"

namespace berth::client {
namespace {

std::vector<ProcessId> tree_of(pid_t root) {
  auto process = root > 0 ? read_process(root) : std::nullopt;
  return process ? descendants({process->id}) : std::vector<ProcessId>();
}

}  // namespace

std::vector<pid_t> processes_below(pid_t except) {
  std::vector<ProcessId> left_out = tree_of(except);
  std::vector<pid_t> result;
  for (ProcessId process : tree_of(::getpid()))
    if (process.pid != ::getpid() && std::find(left_out.begin(), left_out.end(), process) == left_out.end())
      result.push_back(process.pid);
  return result;
}

std::vector<pid_t> own_children(pid_t except) {
  std::vector<pid_t> result;
  for (pid_t pid : processes_below(except)) {
    auto process = read_process(pid);
    if (process && process->parent == ::getpid()) result.push_back(pid);
  }
  return result;
}

bool is_below_us(pid_t process) {
  for (ProcessId ancestor : parent_chain(process))
    if (ancestor.pid == ::getpid()) return process != ::getpid();
  return false;
}

}  // namespace berth::client
