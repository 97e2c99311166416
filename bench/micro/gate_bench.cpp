// What a launch costs the caller while work is tracked or held, on the simulated GPU: subtract the open gate. The driver's part
// is the sim's, so only differences mean anything.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include "../../tools/load/kernels_ptx.h"
#include "abi/driver_api.h"
#include "support/fake_daemon.h"

namespace {

using namespace berth;

template <class F>
F entry(const char* name) {
  static void* shim = dlopen(SHIM_PATH, RTLD_NOW);
  return reinterpret_cast<F>(dlsym(shim, name));
}
#define D(name) entry<decltype(&::name)>(#name)

struct Program {
  test::FakeDaemon daemon;
  CUfunction kernel;
  CUcontext context;
  Program() {
    daemon.quota = 1ull << 30;
    setenv("BERTH_DRIVER", "sim", 1);
    CUmodule module;
    D(cuInit)(0);
    D(cuDevicePrimaryCtxRetain)(&context, 0);
    D(cuCtxSetCurrent)(context);
    D(cuModuleLoadData)(&module, load::kKernelsPtx);
    D(cuModuleGetFunction)(&kernel, module, "berth_spin");
  }
};

// Launches of kernels of no length, a batch of 200 us by what the shim has learned or guesses of them.
void launch(benchmark::State& state, uint32_t gate) {
  static Program program;
  program.daemon.page->cards[0].window_ns = 200'000;
  program.daemon.page->cards[0].may_run = wire::kRunFree;
  program.daemon.page->gate = gate;
  program.daemon.watch(0, wire::Relation::none, -1);
  uint64_t ns = 0;
  void* arguments[] = {&ns};
  auto launch_kernel = D(cuLaunchKernel);
  auto wait = D(cuCtxSynchronize);
  for (int i = 0; i < 3000; ++i) launch_kernel(program.kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
  wait();
  int left = 0;
  for (auto _ : state) {
    if (left-- == 0) {
      state.PauseTiming();
      wait();
      state.ResumeTiming();
      left = 500;
    }
    launch_kernel(program.kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
  }
  program.daemon.page->gate = 0;
  program.daemon.watch(0, wire::Relation::none, -1);
  wait();
}

void open_gate(benchmark::State& state) { launch(state, 0); }
void tracked(benchmark::State& state) { launch(state, wire::kGateTrack); }
void held(benchmark::State& state) { launch(state, wire::kGateTrack | wire::kGateHold); }
BENCHMARK(open_gate);
BENCHMARK(tracked);
BENCHMARK(held);

}  // namespace

BENCHMARK_MAIN();
