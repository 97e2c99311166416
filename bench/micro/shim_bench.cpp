// What a call costs through the shim. Subtract the direct call: it is the same function of the same driver.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include "support/fake_daemon.h"

namespace {

using Entry = int (*)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*);

struct Libraries {
  berth::test::FakeDaemon daemon;
  void *recorder, *shim;
  Libraries() {
    setenv("BERTH_DRIVER", RECORDER_PATH, 1);
    recorder = dlopen(RECORDER_PATH, RTLD_NOW);
    shim = dlopen(SHIM_PATH, RTLD_NOW);
    reinterpret_cast<int (*)(unsigned)>(dlsym(shim, "cuInit"))(0);
    if (daemon.hellos != 1) std::abort();
  }
};
Libraries& libraries() {
  static Libraries one;
  return one;
}

void call(benchmark::State& state, void* library, const char* name) {
  auto entry = reinterpret_cast<Entry>(dlsym(library, name));
  for (auto _ : state)
    entry(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
}

void forwarded_direct(benchmark::State& state) { call(state, libraries().recorder, "cuCtxGetDevice"); }
void forwarded_shim(benchmark::State& state) { call(state, libraries().shim, "cuCtxGetDevice"); }
void launch_direct(benchmark::State& state) { call(state, libraries().recorder, "cuLaunchKernel"); }
void launch_shim(benchmark::State& state) { call(state, libraries().shim, "cuLaunchKernel"); }
void graph_launch_shim(benchmark::State& state) { call(state, libraries().shim, "cuGraphLaunch"); }
void synchronise_shim(benchmark::State& state) { call(state, libraries().shim, "cuStreamSynchronize"); }

BENCHMARK(forwarded_direct);
BENCHMARK(forwarded_shim);
BENCHMARK(launch_direct);
BENCHMARK(launch_shim);
BENCHMARK(graph_launch_shim);
BENCHMARK(synchronise_shim);

}  // namespace

BENCHMARK_MAIN();
