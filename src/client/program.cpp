#include "client/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace berth::client {
namespace {

bool is_file(const std::string& path, struct stat* info) { return ::stat(path.c_str(), info) == 0; }

bool may_execute(const std::string& path, const struct stat& info) {
  return S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

Program look_into(const std::string& path, const struct stat& info) {
  Program program{path};
  program.is_setuid = ((info.st_mode & S_ISUID) && info.st_uid != ::geteuid()) ||
                      ((info.st_mode & S_ISGID) && (info.st_mode & S_IXGRP) && info.st_gid != ::getegid());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  unsigned char ident[EI_NIDENT] = {};
  if (fd && ::read(fd.get(), ident, sizeof ident) == sizeof ident && std::memcmp(ident, ELFMAG, SELFMAG) == 0)
    program.is_32_bit = ident[EI_CLASS] == ELFCLASS32;
  return program;
}

}  // namespace

Result<Program> find_program(const std::string& command) {
  struct stat info;
  if (command.empty()) return Error{"not_found", "the command is empty"};
  if (command.find('/') != std::string::npos) {
    if (!is_file(command, &info))
      return Error{errno == EACCES ? "not_executable" : "not_found", command + ": " + std::strerror(errno)};
    if (S_ISDIR(info.st_mode)) return Error{"not_executable", command + " is a directory"};
    if (!may_execute(command, info)) return Error{"not_executable", command + " is not executable"};
    return look_into(command, info);
  }
  const char* variable = std::getenv("PATH");
  std::string folders = variable ? variable : "/usr/local/bin:/usr/bin:/bin", seen_but_not_executable;
  for (size_t from = 0; from <= folders.size();) {
    size_t to = std::min(folders.find(':', from), folders.size());
    std::string folder = folders.substr(from, to - from), path = (folder.empty() ? "." : folder) + "/" + command;
    from = to + 1;
    if (!is_file(path, &info) || S_ISDIR(info.st_mode)) continue;
    if (may_execute(path, info)) return look_into(path, info);
    seen_but_not_executable = path;
  }
  if (!seen_but_not_executable.empty())
    return Error{"not_executable", seen_but_not_executable + " is not executable"};
  return Error{"not_found", "the command " + command + " was not found"};
}

bool is_container_tool(const std::string& command) {
  std::string name = command.substr(command.rfind('/') + 1);
  return name == "docker" || name == "podman" || name == "nerdctl";
}

}  // namespace berth::client
