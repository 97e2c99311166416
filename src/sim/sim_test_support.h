// For the tests of the simulated GPU: its functions by name, cards of the test's own, and processes that play a part.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "abi/driver_api.h"
#include "abi/nvml_api.h"
#include "sim/test_interface.h"

namespace berth::sim {

inline void* library(const char* path) {
  void* handle = dlopen(path, RTLD_NOW);
  if (!handle) std::fprintf(stderr, "%s\n", dlerror()), std::abort();
  return handle;
}
inline void* find_export(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (!found) std::fprintf(stderr, "no %s\n", name), std::abort();
  return found;
}
// A function of the driver, and of the management library.
#define CU(name) \
  (reinterpret_cast<decltype(&::name)>(berth::sim::find_export(berth::sim::library(SIM_CUDA_PATH), #name)))
#define ML(name) \
  (reinterpret_cast<decltype(&::name)>(berth::sim::find_export(berth::sim::library(SIM_NVML_PATH), #name)))

inline constexpr uint64_t kMiB = 1 << 20;

inline constexpr char kPtx[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry berth_fill(.param .u64 a, .param .u64 b, .param .u32 c)\n{ ret; }\n"
    ".visible .entry berth_check(.param .u64 a, .param .u64 b, .param .u32 c, .param .u64 d)\n{ ret; }\n"
    ".visible .entry berth_spin(.param .u64 a)\n{ ret; }\n"
    ".visible .entry berth_wait(.param .u64 a, .param .u32 b)\n{ ret; }\n"
    ".visible .entry berth_axpy(.param .u64 a, .param .u64 b, .param .f32 c, .param .u64 d)\n{ ret; }\n";

inline size_t free_bytes() {
  size_t free = 0;
  CU(cuMemGetInfo_v2)(&free, nullptr);
  return free;
}

// cuInit and the primary context of card 0, current in this thread.
inline CUcontext use_card() {
  CUcontext context = nullptr;
  if (CU(cuInit)(0) || CU(cuDevicePrimaryCtxRetain)(&context, 0) || CU(cuCtxSetCurrent)(context)) return nullptr;
  return context;
}

inline CUfunction kernel(const char* name) {
  static CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (!module) CU(cuModuleLoadData)(&module, kPtx);
  CU(cuModuleGetFunction)(&function, module, name);
  return function;
}
inline CUresult launch(CUfunction function, CUstream stream, void** arguments) {
  return CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}
inline CUresult fill(CUdeviceptr at, uint64_t words, uint32_t seed, CUstream stream) {
  void* arguments[] = {&at, &words, &seed};
  return launch(kernel("berth_fill"), stream, arguments);
}
inline CUresult spin(uint64_t ns, CUstream stream) {
  void* arguments[] = {&ns};
  return launch(kernel("berth_spin"), stream, arguments);
}
inline CUresult wait_word(CUdeviceptr at, uint32_t value, CUstream stream) {
  void* arguments[] = {&at, &value};
  return launch(kernel("berth_wait"), stream, arguments);
}
inline uint32_t errors_in(CUdeviceptr at, uint64_t words, uint32_t seed, CUstream stream) {
  CUdeviceptr counter;
  uint32_t errors = UINT32_MAX;
  CU(cuMemAlloc_v2)(&counter, 4);
  CU(cuMemsetD32Async)(counter, 0, 1, stream);
  void* arguments[] = {&at, &words, &seed, &counter};
  launch(kernel("berth_check"), stream, arguments);
  CU(cuMemcpyDtoHAsync_v2)(&errors, counter, 4, stream);
  CU(cuStreamSynchronize)(stream);
  CU(cuMemFree_v2)(counter);
  return errors;
}

// This program once more, in the part that main() knows by this name. It speaks by lines on its standard output.
class Part {
 public:
  explicit Part(std::vector<std::string> words, std::vector<std::string> environment = {}) {
    int to[2], from[2];
    EXPECT_EQ(pipe(to), 0);
    EXPECT_EQ(pipe(from), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    for (int fd : {to[0], to[1], from[0], from[1]}) posix_spawn_file_actions_addclose(&actions, fd);
    std::vector<char*> arguments{const_cast<char*>("sim_test"), const_cast<char*>("--part")}, variables;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    for (std::string& variable : environment) variables.push_back(variable.data());
    for (char** each = environ; *each; ++each) variables.push_back(*each);
    variables.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), variables.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]), close(from[1]);
    in_ = to[1];
    out_ = fdopen(from[0], "r");
  }
  Part(Part&& other) noexcept
      : pid(std::exchange(other.pid, 0)), in_(std::exchange(other.in_, -1)), out_(std::exchange(other.out_, nullptr)) {}
  Part& operator=(Part&& other) noexcept {
    std::swap(pid, other.pid), std::swap(in_, other.in_), std::swap(out_, other.out_);
    return *this;
  }
  ~Part() {
    kill();
    if (in_ >= 0) close(in_);
    if (out_) fclose(out_);
  }
  std::string line() {
    char text[4096];
    if (!fgets(text, sizeof text, out_)) return "";
    std::string result = text;
    if (!result.empty() && result.back() == '\n') result.pop_back();
    return result;
  }
  void say(const std::string& text) {
    EXPECT_EQ(write(in_, (text + "\n").data(), text.size() + 1), static_cast<ssize_t>(text.size() + 1));
  }
  void kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = 0;
  }
  int wait() {
    int status = -1;
    waitpid(pid, &status, 0);
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid = 0;

 private:
  int in_ = -1;
  FILE* out_ = nullptr;
};

// What a part does, by its name; its arguments follow.
int play(const std::string& part, const std::vector<std::string>& arguments);

}  // namespace berth::sim
