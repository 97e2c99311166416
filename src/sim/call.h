// How every exported function of the driver library begins: SIM_CALL(needs) counts it, injects faults, and sees that
// what it needs is there. What it needs of the process is locked until the function returns.
#pragma once
#include <algorithm>

#include "abi/driver_api.h"
#include "sim/faults.h"
#include "sim/process.h"

namespace berth::sim {

enum Needs : unsigned {
  kNothing = 0,
  kDriver = 1,      // cuInit has succeeded in this very process (not in the parent of a fork)
  kContext = 2,     // and the thread has a context, which has not failed
  kUnsafe = 4,      // not while a capture forbids it; otherwise that capture is lost
  kEvenFailed = 8,  // with kContext: it may have failed
};

struct Call {
  Call(Entry& entry, unsigned needs);
  CUresult result = CUDA_SUCCESS;
  Lock lock;
  Context* context = nullptr;
};

#define SIM_CALL(needs)                                \
  constinit static berth::sim::Entry entry_(__func__); \
  berth::sim::Call call(entry_, needs);                \
  if (call.result != CUDA_SUCCESS) return call.result

// Defines a function in its two flavours, which differ in what the null stream means.
enum class Flavour { legacy, per_thread };
#define SIM_BOTH_FLAVOURS(name, suffix, parameters, ...)      \
  CUresult name parameters {                                  \
    constexpr auto flavour = berth::sim::Flavour::legacy;     \
    __VA_ARGS__                                               \
  }                                                           \
  CUresult name##suffix parameters {                          \
    constexpr auto flavour = berth::sim::Flavour::per_thread; \
    __VA_ARGS__                                               \
  }

// The process's state with regard to cuInit.
enum class Life { before, alive, forked, over };
Life life();

// The stack of contexts of the calling thread. Trivial, so that it needs no destruction: destructors of the program's own, which
// run after a thread's objects have gone, still call the driver. Deeper than its room, the bottom is forgotten.
class ContextStack {
 public:
  bool empty() const { return count_ == 0; }
  Context* back() const { return items_[count_ - 1]; }
  void push_back(Context* context) {
    if (count_ == kRoom) std::copy(items_ + 1, items_ + count_--, items_);
    items_[count_++] = context;
  }
  void pop_back() { --count_; }

 private:
  static constexpr size_t kRoom = 256;
  Context* items_[kRoom];
  size_t count_;
};
ContextStack& context_stack();

// The stream meant, or null if there is no such one. Remembered for berth_sim_last_stream().
Stream* stream_of(Call& call, CUstream stream, Flavour flavour);
CUstream last_stream();
// Null if the handle is none of a living context, or was never one.
Context* context_of(CUcontext handle);
Context* known_context(CUcontext handle);
Device* device_of(CUdevice ordinal);

// Puts the work into the stream, or into the graph that the stream is captured into.
CUresult submit_work(Stream& stream, Work work, TicketRef* ticket = nullptr);
// The same, and waits for it.
CUresult run_work(Call& call, Stream& stream, Work work);

}  // namespace berth::sim
