#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/doctor.h"
#include "cli/probe.h"
#include "client/daemon.h"

namespace berth::cli {
namespace {

// How a child with our folder first on LD_LIBRARY_PATH would find `library`: "" or the fault.
std::string load(const std::string& path) {
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) ? "" : std::string(::dlerror());
}

Check check_files() {
  std::string folder = library_folder() + "/shim";
  for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::string path = folder + "/" + library;
    if (::access(path.c_str(), R_OK) != 0)
      return {"berth's libraries", Health::failed, path + " can't be read", "install berth again, all of it below one prefix"};
    auto fault = probe([&] { return load(path); }, std::chrono::seconds(20));
    if (!fault) return {"berth's libraries", Health::failed, path + " can't be loaded: " + fault.error().message, "install berth again"};
    if (!fault->empty()) return {"berth's libraries", Health::failed, *fault, "install berth again"};
  }
  return {"berth's libraries", Health::ok, folder, ""};
}

// Starts a program the way `berth run` does and looks which file it got.
Check check_reach() {
  std::string folder = library_folder() + "/shim", path = std::getenv("LD_LIBRARY_PATH") ? std::getenv("LD_LIBRARY_PATH") : "";
  int status = 0;
  auto child = Child::execute({executable_folder() + "/berth", "doctor", "--which-driver"},
                              {"LD_LIBRARY_PATH=" + folder + (path.empty() ? "" : ":" + path)});
  Result<std::string> found = child ? child->output(std::chrono::seconds(20), &status) : Result<std::string>(child.error());
  struct stat ours, theirs;
  bool same = found && ::stat((folder + "/libcuda.so.1").c_str(), &ours) == 0 && ::stat(found->c_str(), &theirs) == 0 &&
              ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
  if (same) return {"reach", Health::ok, "a program below berth run gets berth's library", ""};
  return {"reach", Health::failed, "a program below berth run gets " + (found && !found->empty() ? *found : "no libcuda.so.1"),
          "something comes before LD_LIBRARY_PATH (LD_PRELOAD, LD_AUDIT?): unset it, or use --isolate"};
}

Check check_daemon() {
  auto connection = client::connect_daemon();
  if (!connection && connection.error().code == "unreachable")
    return {"daemon", Health::ok, "none runs; berth run starts one", ""};
  if (!connection) return {"daemon", Health::failed, connection.error().message, ""};
  auto status = connection->request({{"op", "status"}});
  if (!status) return {"daemon", Health::failed, status.error().message, ""};
  std::string version = status->value("version", "unknown");
  std::string found = connection->socket() + ", pid " + std::to_string(connection->daemon_pid()) + ", version " + version;
  if (version != BERTH_VERSION)
    return {"daemon", Health::warning, found, "this command is version " BERTH_VERSION ": end the daemon when no job runs, and the next berth run starts the new one"};
  return {"daemon", Health::ok, found, ""};
}

// Others' per-user daemons keep the devices that they use to themselves.
void add_other_daemons(Checks* checks) {
  DIR* folder = ::opendir("/tmp");
  if (!folder) return;
  while (dirent* entry = ::readdir(folder)) {
    std::string name = entry->d_name;
    if (name.rfind("berth-", 0) != 0 || name.find_first_not_of("0123456789", 6) != std::string::npos || name.size() == 6) continue;
    if (name == "berth-" + std::to_string(::getuid())) continue;
    checks->push_back({"other users", Health::warning, "user " + name.substr(6) + " has used a daemon of their own (/tmp/" + name + ")",
                       "two users' daemons don't share a device: set up the system service, see README.md"});
  }
  ::closedir(folder);
}

}  // namespace

Checks check_berth() {
  Checks checks{check_files(), check_reach(), check_daemon()};
  add_other_daemons(&checks);
  return checks;
}

}  // namespace berth::cli
