// B31 to B33: kill -9 at every step. A worker that takes and frees device memory is traced and killed at its first, second, third
// ... stop at a system call; after each death another worker must get all the memory that the dead one had or was about to have.
//   kill_at_step take|init STRIDE MIBIBYTES    the steps of an allocation and its release, or of cuInit and the context too
//   kill_at_step work take|init MIBIBYTES      the worker
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "contract/contract.h"

namespace {

void here() { kill(getpid(), SIGSTOP); }  // the tracer counts from this moment

int work(const std::string& what, size_t bytes, bool traced) {
  auto init = D(cuInit);
  if (traced && what == "init") here();
  init(0);
  contract::start();
  auto allocate = D(cuMemAlloc_v2);
  auto give_back = D(cuMemFree_v2);
  if (traced && what == "take") here();
  CUdeviceptr pointer;
  CUresult result = allocate(&pointer, bytes);
  if (result == CUDA_SUCCESS) result = give_back(pointer);
  return result == CUDA_SUCCESS ? 0 : 10 + result;
}

pid_t start_worker(const char* self, const std::string& what, const char* size, bool traced) {
  pid_t pid = fork();
  if (pid) return pid;
  if (traced && ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
  execl(self, self, "work", what.c_str(), size, traced ? "traced" : nullptr, nullptr);
  _exit(127);
}

// True if the worker was killed at its stop number `step`; false if it ended before.
bool kill_at(pid_t pid, int step, int* status) {
  bool counting = false;
  for (int stops = 0;;) {
    if (waitpid(pid, status, 0) != pid || !WIFSTOPPED(*status)) return false;
    int number = WSTOPSIG(*status);
    bool at_call = number == (SIGTRAP | 0x80);
    if (!counting && number == SIGSTOP) {
      counting = true;
      ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD);
    } else if (counting && at_call && ++stops >= step) {
      kill(pid, SIGKILL);
      waitpid(pid, status, 0);
      return true;
    }
    bool swallow = at_call || number == SIGTRAP || number == SIGSTOP;
    ptrace(counting ? PTRACE_SYSCALL : PTRACE_CONT, pid, nullptr, static_cast<long>(swallow ? 0 : number));
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::string what = count > 1 ? arguments[1] : "";
  if (what == "work") return work(arguments[2], std::stoul(arguments[3]) << 20, count > 4);
  int deaths = 0, stride = std::stoi(arguments[2]);
  for (int step = 1;; step += stride) {
    int status = 0;
    if (!kill_at(start_worker(arguments[0], what, arguments[3], true), step, &status)) {
      std::printf("{\"deaths\": %d, \"last\": %d}\n", deaths, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
      return 0;
    }
    ++deaths;
    waitpid(start_worker(arguments[0], what, arguments[3], false), &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::printf("{\"deaths\": %d, \"step\": %d, \"next\": %d}\n", deaths, step, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
      return 1;
    }
  }
}
