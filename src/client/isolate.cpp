#include "client/isolate.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/paths.h"
#include "base/unique_fd.h"

namespace berth::client {
namespace {

Error failed(const std::string& what) {
  return {"internal", "--isolate: cannot " + what + ": " + std::strerror(errno)};
}

Status write_file(const std::string& path, const std::string& text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return failed("write " + path);
  return Ok{};
}

Status bind(const std::string& from, const std::string& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0) return failed("mount " + from + " over " + to);
  return Ok{};
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("make " + path);
  return Ok{};
}

Status make_namespaces(uid_t uid, gid_t gid) {
  if (::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0) return Ok{};
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    Error error = failed("make a user namespace");
    error.message += "; the system forbids it (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone or "
                     "kernel.apparmor_restrict_unprivileged_userns), so run without --isolate";
    return error;
  }
  if (auto done = write_file("/proc/self/setgroups", "deny"); !done) return done;
  std::string user = std::to_string(uid), group = std::to_string(gid);
  if (auto done = write_file("/proc/self/uid_map", user + " " + user + " 1"); !done) return done;
  return write_file("/proc/self/gid_map", group + " " + group + " 1");
}

// Binds the first of `files` to a placeholder, then ours over all of them.
Status cover(const std::vector<std::string>& files, const std::string& library, const IsolationPlan& plan) {
  if (files.empty()) return Ok{};
  std::string placeholder = plan.meeting_folder + "/real/" + library;
  UniqueFd fd(::open(placeholder.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return failed("make " + placeholder);
  if (auto done = bind(files.front(), placeholder); !done) return done;
  for (const std::string& file : files)
    if (auto done = bind(plan.shim_folder + "/" + library, file); !done) return done;
  return Ok{};
}

}  // namespace

Result<IsolationPlan> plan_isolation(const std::string& socket) {
  IsolationPlan plan;
  plan.files = find_driver_files();
  plan.shim_folder = library_folder() + "/shim";
  plan.socket = socket;
  plan.uid = ::geteuid();
  plan.gid = ::getegid();
  plan.meeting_folder = "/tmp/berth-" + std::to_string(::getuid());
  plan.socket_inside = socket.rfind(plan.meeting_folder + "/", 0) == 0;
  if (plan.files.cuda.empty())
    return Error{"no_device", "--isolate: there is no libcuda.so.1 on this machine to cover; install the driver or run "
                              "without --isolate"};
  for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"})
    if (::access((plan.shim_folder + "/" + library).c_str(), R_OK) != 0)
      return failed("read berth's own " + plan.shim_folder + "/" + library);
  if (auto done = make_folder(plan.meeting_folder); !done) return done.error();
  struct stat info;
  if (::lstat(plan.meeting_folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != plan.uid ||
      (info.st_mode & 077))
    return Error{"internal", "--isolate: " + plan.meeting_folder + " is not a folder of yours with mode 0700; remove it"};
  if (plan.socket_inside)
    if (auto done = make_folder(plan.meeting_folder + "/real"); !done) return done.error();
  return plan;
}

Status enter_isolation(const IsolationPlan& plan) {
  if (auto done = make_namespaces(plan.uid, plan.gid); !done) return done;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return failed("keep mounts to itself");
  std::string real = plan.meeting_folder + "/real", fresh = plan.socket_inside ? real : plan.meeting_folder;
  if (::mount("berth", fresh.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=64k") != 0)
    return failed("mount a tmpfs at " + fresh);
  if (!plan.socket_inside) {
    if (auto done = make_folder(real); !done) return done;
    // By name, not by inode: a daemon that is started again makes a new socket.
    std::string meeting = plan.meeting_folder + "/berth.sock";
    if (::symlink(plan.socket.c_str(), meeting.c_str()) != 0) return failed("make " + meeting);
  }
  if (auto done = cover(plan.files.cuda, "libcuda.so.1", plan); !done) return done;
  return cover(plan.files.nvml, "libnvidia-ml.so.1", plan);
}

Status probe_isolation() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("make a pipe");
  UniqueFd reader(ends[0]), writer(ends[1]);
  uid_t uid = ::geteuid();
  gid_t gid = ::getegid();
  pid_t pid = ::fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) {
    auto done = make_namespaces(uid, gid);
    if (done && ::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) done = failed("keep mounts to itself");
    const std::string text = done ? "" : done.error().message;
    ::_exit(::write(writer.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  writer.reset();
  std::string text(1024, '\0');
  ssize_t got;
  do got = ::read(reader.get(), text.data(), text.size());
  while (got < 0 && errno == EINTR);
  ::waitpid(pid, nullptr, 0);
  if (got > 0) return Error{"internal", text.substr(0, static_cast<size_t>(got))};
  return Ok{};
}

}  // namespace berth::client
