#include "client/program.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace berth::client {
namespace {

bool is_file(const std::string& path, struct stat* info) { return ::stat(path.c_str(), info) == 0; }

bool may_execute(const std::string& path, const struct stat& info) {
  return S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// "#! /bin/sh -e" -> "/bin/sh", as the kernel reads it.
std::string script_interpreter(const std::string& head) {
  std::string line = head.substr(2, head.find('\n') - 2);
  size_t start = line.find_first_not_of(" \t");
  if (start == std::string::npos) return "";
  return line.substr(start, line.find_first_of(std::string(" \t\0", 3), start) - start);
}

// The loader that a 64-bit program asks for; "" if it needs none.
std::string elf_interpreter(int fd, const std::string& head) {
  Elf64_Ehdr header;
  if (head.size() < sizeof header) return "";
  std::memcpy(&header, head.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    auto at = static_cast<off_t>(header.e_phoff + static_cast<uint64_t>(i) * sizeof segment);
    if (::pread(fd, &segment, sizeof segment, at) != sizeof segment) return "";
    if (segment.p_type != PT_INTERP || segment.p_filesz > PATH_MAX) continue;
    std::string path(segment.p_filesz, '\0');
    if (::pread(fd, path.data(), path.size(), static_cast<off_t>(segment.p_offset)) != static_cast<ssize_t>(path.size()))
      return "";
    return path.c_str();
  }
  return "";
}

// The kernel's own word for a missing one is that the program itself is not there.
Status check_interpreter(const std::string& path, const std::string& interpreter) {
  struct stat info;
  std::string what = "cannot execute " + path + ": its interpreter " + interpreter;
  if (!is_file(interpreter, &info)) {
    std::string hint = interpreter.back() == '\r' ? "; its first line ends in a carriage return" : "";
    return Error{errno == EACCES ? "not_executable" : "not_found",
                 what + (errno == EACCES ? " may not be reached" : " was not found") + hint};
  }
  if (!may_execute(interpreter, info)) return Error{"not_executable", what + " is not executable"};
  return Ok{};
}

Result<Program> look_into(const std::string& path, const struct stat& info) {
  Program program{path};
  program.is_setuid = ((info.st_mode & S_ISUID) && info.st_uid != ::geteuid()) ||
                      ((info.st_mode & S_ISGID) && (info.st_mode & S_IXGRP) && info.st_gid != ::getegid());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string head(256, '\0');  // as much as the kernel looks at
  ssize_t got = fd ? ::pread(fd.get(), head.data(), head.size(), 0) : 0;
  head.resize(got > 0 ? static_cast<size_t>(got) : 0);
  std::string interpreter;
  if (head.starts_with("#!")) {
    interpreter = script_interpreter(head);
  } else if (head.size() >= EI_NIDENT && head.starts_with(ELFMAG)) {
    program.is_32_bit = head[EI_CLASS] == ELFCLASS32;
    if (!program.is_32_bit) interpreter = elf_interpreter(fd.get(), head);
  }
  if (!interpreter.empty())
    if (auto there = check_interpreter(path, interpreter); !there) return there.error();
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

bool starts_container(const std::vector<std::string>& argv) {
  static constexpr std::string_view kTools[] = {"docker", "podman", "nerdctl", "docker-compose", "podman-compose"};
  static constexpr std::string_view kStarting[] = {"run", "create", "start", "restart", "exec", "up", "play", "deploy"};
  static constexpr std::string_view kGroups[] = {"container", "pod", "compose", "kube", "service", "stack"};
  auto is_one_of = [](const auto& words, std::string_view word) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
  };
  if (argv.empty() || !is_one_of(kTools, argv[0].substr(argv[0].rfind('/') + 1))) return false;
  bool value = false;  // the word may be the value of the option before it
  for (size_t i = 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word.starts_with("-")) {
      value = word.find('=') == std::string::npos;
    } else if (is_one_of(kStarting, word)) {
      return true;
    } else if (!std::exchange(value, false) && !is_one_of(kGroups, word)) {
      return false;  // another subcommand
    }
  }
  return false;
}

}  // namespace berth::client
