// descendants vfork|spawn|clone: a client makes a child that way; then both take memory. `descendants child` is what the first two
// execute. Prints what came of it as one line of JSON each.
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "contract/contract.h"

namespace {

constexpr size_t kPiece = 1 << 30;

CUresult take(CUdeviceptr* pointer) { return D(cuMemAlloc_v2)(pointer, kPiece); }

int child() {
  CUdeviceptr pointer;
  contract::start();
  int result = take(&pointer);
  std::printf("{\"child\": %d, \"free\": %zu}\n", result, contract::free_bytes());
  return 0;
}

pid_t make_child(const std::string& way, const char* self) {
  const char* arguments[] = {self, "child", nullptr};
  auto* argv = const_cast<char**>(arguments);
  auto allocate = D(cuMemAlloc_v2);
  pid_t pid = -1;
  if (way == "vfork") {
    pid = vfork();
    if (pid == 0) {
      execv("/nonexistent", argv);  // a search along PATH fails before it succeeds
      execv(self, argv);
      _exit(127);
    }
  } else if (way == "spawn") {
    posix_spawn(&pid, self, nullptr, nullptr, argv, environ);
  } else if (way == "clone") {
    pid = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));  // past the C library and its handlers
    CUdeviceptr pointer;
    if (pid == 0) _exit(10 + allocate(&pointer, 4096));
  }
  return pid;
}

}  // namespace

int main(int count, char** arguments) {
  std::string way = count > 1 ? arguments[1] : "";
  if (way == "child") return child();
  CUdeviceptr first, second;
  contract::start();
  int before = take(&first), status = -1;
  waitpid(make_child(way, arguments[0]), &status, 0);
  int after = take(&second), freed = D(cuMemFree_v2)(first);
  std::printf("{\"before\": %d, \"status\": %d, \"after\": %d, \"freed\": %d}\n", before, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
              after, freed);
}
