#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/paths.h"
#include "cli/doctor.h"
#include "client/daemon.h"
#include "client/isolate.h"

namespace berth::cli {
namespace {

constexpr rlim_t kDescriptors = 1024;

std::string read_file(const char* path) {
  std::ifstream in(path);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

Check check_kernel() {
  utsname system{};
  ::uname(&system);
  int major = 0, minor = 0;
  std::sscanf(system.release, "%d.%d", &major, &minor);
  std::string found = std::string(system.sysname) + " " + system.release + " " + system.machine;
  if (major > 5 || (major == 5 && minor >= 1)) return {"kernel", Health::ok, found, ""};
  return {"kernel", Health::warning, found, "before 5.1 shared memory can't be sealed: use berth for one user only, or a newer kernel"};
}

Check check_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  std::string found = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  if (limit.rlim_cur >= kDescriptors) return {"open files", Health::ok, found, ""};
  return {"open files", Health::warning, found, "few descriptors a process: raise the limit (ulimit -n 4096)"};
}

Check check_namespaces() {
  auto done = client::probe_isolation();
  if (done) return {"namespaces", Health::ok, "--isolate can be used", ""};
  return {"namespaces", Health::warning, done.error().message, "all but --isolate works without them"};
}

Check check_runtime_folder() {
  auto socket = client::own_socket();
  if (!socket) return {"runtime folder", Health::failed, socket.error().message, ""};
  if (std::string fault = folder_fault(*socket); !fault.empty())
    return {"runtime folder", Health::failed, fault,
            "set BERTH_SOCKET to a path in a folder of yours, or XDG_RUNTIME_DIR to another folder"};
  return {"runtime folder", Health::ok, std::filesystem::path(*socket).parent_path().string(), ""};
}

// Only where there is something to say.
void add_container(Checks* checks) {
  std::string own = read_file("/proc/self/cgroup"), init = read_file("/proc/1/cgroup");
  bool inside = ::access("/.dockerenv", F_OK) == 0 || ::access("/run/.containerenv", F_OK) == 0;
  for (const char* word : {"docker", "kubepods", "libpod", "containerd"})
    inside = inside || init.find(word) != std::string::npos || own.find(word) != std::string::npos;
  if (inside)
    checks->push_back({"container", Health::ok, "this is a container",
                       "a daemon in here sees only the processes in here; docs/containers.md shows how to use the host's"});
}

void add_wsl(Checks* checks) {
  std::string version = read_file("/proc/version");
  if (version.find("icrosoft") != std::string::npos)
    checks->push_back({"WSL", Health::warning, "Windows subsystem for Linux",
                       "NVML tells less there: memory per process may be unknown, and quotas then rest on berth's own count"});
}

}  // namespace

Checks check_system() {
  Checks checks{check_kernel(), check_descriptors(), check_namespaces(), check_runtime_folder()};
  add_container(&checks);
  add_wsl(&checks);
  return checks;
}

}  // namespace berth::cli
