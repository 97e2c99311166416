// Trying something out in a child, so that a crash, a hang or a changed process stays there.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::cli {

// Runs `work` in a forked child and gives what it returned. Error if the child crashed or took longer than `patience`.
// The process must have one thread.
Result<std::string> probe(const std::function<std::string()>& work, std::chrono::seconds patience);

// A child whose stdout is read; it gets a process group of its own, /dev/null for stdin and stderr. Destroyed without
// output(), it is killed.
class Child {
 public:
  // `body` runs in the child and gives its exit code.
  static Result<Child> fork(const std::function<int()>& body);
  // Executes argv[0], looked up on PATH, with `environment` (NAME=VALUE) added to ours. With `errors`, what goes to its
  // stderr is read too.
  static Result<Child> execute(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {},
                               bool errors = false);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)), reader_(std::move(other.reader_)) {}
  Child& operator=(Child&&) = delete;
  ~Child();

  // All that it writes, once it has ended; *status is that of waitpid. Killed, with its group, and an error if it takes
  // longer than `patience`.
  Result<std::string> output(std::chrono::seconds patience, int* status);

 private:
  Child(pid_t pid, UniqueFd reader) : pid_(pid), reader_(std::move(reader)) {}
  pid_t pid_;
  UniqueFd reader_;
};

}  // namespace berth::cli
