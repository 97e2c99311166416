// The unit of work of `infer` and `train`: input to the device, some kernels, a sum whose value is known, result back.
#pragma once
#include <cstdint>

#include "memory.h"
#include "options.h"

namespace berth::load {

class Work {
 public:
  // `memory` holds one block at least and outlives this. Each unit is `kernels` kernels of `kernel_us`, as one graph if
  // asked.
  Work(Session& session, const Memory& memory, int kernels, int kernel_us, bool graph);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Enqueues one unit; at most kAhead may be unfinished.
  void submit();
  // Waits until all but the last `left` submitted units are done, and counts the wrong results among them.
  void finish(uint64_t left = 0);

  uint64_t done() const { return done_; }
  uint64_t wrong() const { return wrong_; }

  static constexpr uint64_t kAhead = 2;

 private:
  void enqueue();
  void record_graph();

  Session& session_;
  int kernels_;
  uint64_t kernel_ns_;
  CUdeviceptr x_, y_;  // y += x in each unit
  uint64_t n_;
  float* input_ = nullptr;   // pinned, n_ ones
  float* output_ = nullptr;  // pinned, a slot for each unit in flight
  CUevent events_[kAhead] = {};
  CUgraphExec graphs_[kAhead] = {};
  uint64_t submitted_ = 0, done_ = 0, wrong_ = 0;
};

}  // namespace berth::load
