#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/paths.h"
#include "base/process.h"
#include "cli/doctor.h"
#include "cli/probe.h"
#include "client/daemon.h"
#include "client/held_child.h"

namespace berth::cli {
namespace {

// "" or the fault.
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

// The runtime alias library, which `berth run -g` loads into programs.
Check check_virtual_devices() {
  std::string path = client::runtime_alias_path();
  if (::access(path.c_str(), R_OK) != 0)
    return {"virtual devices", Health::warning, path + " can't be read",
            "with -g the driver and NVML show the virtual devices, programs on the CUDA runtime see the devices "
            "themselves: install berth again"};
  auto fault = probe([&] { return load(path); }, std::chrono::seconds(20));
  if (fault && fault->empty()) return {"virtual devices", Health::ok, "berth run -g loads " + path, ""};
  return {"virtual devices", Health::failed, fault ? *fault : path + " can't be loaded: " + fault.error().message,
          "install berth again"};
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

// Compute modes that the daemon's configuration sets; what cards are set to stands with them.
void add_modes(const Json& status, Checks* checks) {
  for (const Json& device : status.value("devices", Json::array())) {
    std::string mode = device.value("compute_mode", "default");
    if (mode == "default" || mode == device.value("card_compute_mode", "default")) continue;
    std::string file = status.value("config_file", Json()).is_string() ? status["config_file"].get<std::string>() : "its configuration";
    checks->push_back({"compute mode", Health::warning,
                       "the daemon keeps device " + std::to_string(device.value("index", 0)) + " " + mode +
                           (mode == "exclusive" ? ": one job and one process at a time" : ": no job is admitted there"),
                       "[device] in " + file + " says so; \"default\" lets several share it"});
  }
}

Check check_daemon(Checks* more) {
  auto connection = client::connect_daemon();
  if (!connection && connection.error().code == "unreachable") {
    auto socket = client::own_socket();
    if (socket && folder_fault(*socket).empty()) return {"daemon", Health::ok, "none runs; berth run starts one", ""};
    return {"daemon", Health::failed, connection.error().message, "see 'runtime folder' above"};
  }
  if (!connection) return {"daemon", Health::failed, connection.error().message, ""};
  auto status = connection->request({{"op", "status"}});
  if (!status) return {"daemon", Health::failed, status.error().message, ""};
  std::string version = status->value("version", "unknown");
  std::string found = connection->socket() + ", pid " + std::to_string(connection->daemon_pid()) + ", version " + version;
  add_modes(*status, more);
  if (version != BERTH_VERSION)
    return {"daemon", Health::warning, found, "this command is version " BERTH_VERSION ": end the daemon when no job runs, and the next berth run starts the new one"};
  return {"daemon", Health::ok, found, ""};
}

// A daemon of somebody else keeps the devices that it has jobs on; the system's serves everybody.
void add_other_daemons(Checks* checks) {
  auto connection = client::connect_daemon();
  pid_t ours = connection ? connection->daemon_pid() : 0;
  DIR* folder = ::opendir("/proc");
  if (!folder) return;
  while (dirent* entry = ::readdir(folder)) {
    pid_t pid = std::atoi(entry->d_name);
    struct stat info;
    if (pid <= 0 || pid == ours || short_command_of(pid) != "berthd") continue;
    if (::stat(("/proc/" + std::to_string(pid)).c_str(), &info) != 0 || info.st_uid == ::getuid()) continue;
    checks->push_back({"other users", Health::warning, "user " + std::to_string(info.st_uid) + " runs a daemon too (pid " + std::to_string(pid) + ")",
                       "daemons don't know each other's jobs: for several users run the system service, see README.md"});
  }
  ::closedir(folder);
}

}  // namespace

Checks check_berth() {
  Checks modes, checks{check_files(), check_virtual_devices(), check_reach(), check_daemon(&modes)};
  checks.insert(checks.end(), modes.begin(), modes.end());
  add_other_daemons(&checks);
  return checks;
}

}  // namespace berth::cli
