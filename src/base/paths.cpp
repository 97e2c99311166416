#include "base/paths.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/size.h"

namespace berth {
namespace {

constexpr const char* kUsualName = "berth.sock";
constexpr uint64_t kRoom = 256 << 10;  // what a daemon writes at its start, and some more

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string companion(const std::string& socket, const char* usual, const char* suffix) {
  size_t name = socket.rfind('/') + 1;  // 0 without a slash
  return socket.substr(name) == kUsualName ? socket.substr(0, name) + usual : socket + suffix;
}

}  // namespace

std::string executable_folder() {
  char path[PATH_MAX];
  ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return ".";
  std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

std::string library_folder() {
  std::string bin = executable_folder();
  return bin.substr(0, bin.rfind('/')) + "/lib/berth";
}

Result<std::string> user_runtime_folder() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  std::string folder = xdg && xdg[0] == '/' ? std::string(xdg) + "/berth" : "/tmp/berth-" + std::to_string(::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Error{"internal", "cannot make the folder " + folder + ": " + std::strerror(errno) +
                                 "; set XDG_RUNTIME_DIR or BERTH_SOCKET to a place you can write to"};
  struct stat info;
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid())
    return Error{"internal", folder + " is not a folder of yours; remove it, or set BERTH_SOCKET"};
  if (info.st_mode & 077)
    return Error{"internal", "others may enter the folder " + folder + "; do chmod 700 " + folder + ", or set BERTH_SOCKET"};
  return folder;
}

std::string state_file_of(const std::string& socket) { return companion(socket, "berth.db", ".db"); }

std::string log_file_of(const std::string& socket) { return companion(socket, "berthd.log", ".log"); }

std::string folder_fault(const std::string& path) {
  std::string folder = folder_of(path);
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0)
    return errno == ENOENT ? "the folder " + folder + " does not exist" : folder + ": " + std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return folder + " is no folder";
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return errno == EACCES ? "you may not write to the folder " + folder : folder + ": " + std::strerror(errno);
  struct statvfs space;
  if (::statvfs(folder.c_str(), &space) != 0 || space.f_blocks == 0) return "";  // some filesystems don't count
  uint64_t room = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (room >= kRoom) return "";
  return "no space is left in the folder " + folder + " (" + format_size(room) + " free, and a daemon needs " +
         format_size(kRoom) + "): free some there, or choose another folder";
}

bool socket_is_chosen() {
  const char* chosen = std::getenv("BERTH_SOCKET");
  return chosen && *chosen;
}

Result<std::vector<std::string>> socket_candidates() {
  if (socket_is_chosen()) return std::vector<std::string>{std::getenv("BERTH_SOCKET")};
  auto folder = user_runtime_folder();
  if (!folder) return folder.error();
  return std::vector<std::string>{kSystemSocket, *folder + "/berth.sock"};
}

}  // namespace berth
