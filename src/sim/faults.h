// The one thing that every exported function passes first: it counts the call and injects what BERTH_SIM_FAULTS asks
// for.
//
// BERTH_SIM_FAULTS is a list with commas:
//   cuMemAlloc_v2:2        every call answers 2      cuMemAlloc_v2:2@3   the third call does
//   cuMemAlloc_v2:2@3+     from the third call on    cuInit:delay=500    every call takes 500 ms more (@N, @N+ too)
//   symbols=missing:A;B    cuGetProcAddress does not find A and B
#pragma once
#include <atomic>
#include <cstdint>

namespace berth::sim {

// One for each exported function: a constant-initialised static of the function, so an entry costs nothing before its
// use.
struct Entry {
  const char* name;
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> listed{false};
  Entry* next = nullptr;
  constexpr explicit Entry(const char* function) : name(function) {}
};

// The injected result, or 0: go on.
int pass_entry(Entry& entry);
uint64_t calls_of(const char* name);
bool symbol_hidden(const char* name);

}  // namespace berth::sim
