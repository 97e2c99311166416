#include "base/paths.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace berth {

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
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() || (info.st_mode & 077))
    return Error{"internal", folder + " is not a folder of yours with mode 0700; remove it, or set BERTH_SOCKET"};
  return folder;
}

Result<std::vector<std::string>> socket_candidates() {
  const char* chosen = std::getenv("BERTH_SOCKET");
  if (chosen && *chosen) return std::vector<std::string>{chosen};
  auto folder = user_runtime_folder();
  if (!folder) return folder.error();
  return std::vector<std::string>{kSystemSocket, *folder + "/berth.sock"};
}

}  // namespace berth
