#include "work.h"

#include <algorithm>

namespace berth::load {
namespace {

constexpr uint64_t kMostFloats = 16384;  // 64 KiB of input
constexpr unsigned kNoTiming = 2;
constexpr int kCaptureThreadLocal = 1;

// What `done` additions of 1 to 0 give in single precision.
float expected_sum(uint64_t done) { return static_cast<float>(std::min<uint64_t>(done, 1 << 24)); }

}  // namespace

Work::Work(Session& session, const Memory& memory, int kernels, int kernel_us, bool graph)
    : session_(session), kernels_(kernels), kernel_ns_(static_cast<uint64_t>(kernel_us) * 1000) {
  const Driver& driver = session_.driver();
  const Block& block = memory.blocks().at(0);
  n_ = std::min(kMostFloats, block.bytes / 8);
  x_ = block.address;
  y_ = x_ + 4 * n_;
  void* pinned = nullptr;
  must(driver, driver.cuMemAllocHost_v2(&pinned, (n_ + kAhead) * sizeof(float)), "cuMemAllocHost");
  input_ = static_cast<float*>(pinned);
  output_ = input_ + n_;
  std::fill_n(input_, n_, 1.0f);
  for (CUevent& event : events_) must(driver, driver.cuEventCreate(&event, kNoTiming), "cuEventCreate");
  must(driver, driver.cuMemsetD32Async(y_, 0, n_, session_.stream()), "cuMemsetD32Async");
  session_.synchronize();
  if (graph) record_graph();
}

Work::~Work() {
  const Driver& driver = session_.driver();
  driver.cuStreamSynchronize(session_.stream());
  for (CUgraphExec graph : graphs_)
    if (graph) driver.cuGraphExecDestroy(graph);
  for (CUevent event : events_) driver.cuEventDestroy_v2(event);
  driver.cuMemFreeHost(input_);
}

// One graph for each output slot: a graph's addresses are fixed when it is recorded.
void Work::record_graph() {
  const Driver& driver = session_.driver();
  for (submitted_ = 0; submitted_ < kAhead; ++submitted_) {
    CUgraph graph = nullptr;
    must(driver, driver.cuStreamBeginCapture_v2(session_.stream(), kCaptureThreadLocal), "cuStreamBeginCapture");
    enqueue();
    must(driver, driver.cuStreamEndCapture(session_.stream(), &graph), "cuStreamEndCapture");
    must(driver, driver.cuGraphInstantiateWithFlags(&graphs_[submitted_], graph, 0), "cuGraphInstantiate");
    must(driver, driver.cuGraphDestroy(graph), "cuGraphDestroy");
  }
  submitted_ = 0;
}

void Work::enqueue() {
  const Driver& driver = session_.driver();
  CUstream stream = session_.stream();
  must(driver, driver.cuMemcpyHtoDAsync_v2(x_, input_, n_ * sizeof(float), stream), "cuMemcpyHtoDAsync");
  for (int i = 0; i < kernels_; ++i) session_.spin(kernel_ns_);
  session_.axpy(y_, x_, 1.0f, n_);
  // The last element: reached by the last threads only when the whole kernel has run.
  must(driver, driver.cuMemcpyDtoHAsync_v2(output_ + submitted_ % kAhead, y_ + 4 * (n_ - 1), sizeof(float), stream),
       "cuMemcpyDtoHAsync");
}

void Work::submit() {
  const Driver& driver = session_.driver();
  uint64_t slot = submitted_ % kAhead;
  if (graphs_[slot])
    must(driver, driver.cuGraphLaunch(graphs_[slot], session_.stream()), "cuGraphLaunch");
  else
    enqueue();
  must(driver, driver.cuEventRecord(events_[slot], session_.stream()), "cuEventRecord");
  ++submitted_;
}

void Work::finish(uint64_t left) {
  for (; done_ + left < submitted_; ++done_) {
    must(session_.driver(), session_.driver().cuEventSynchronize(events_[done_ % kAhead]), "cuEventSynchronize");
    wrong_ += output_[done_ % kAhead] != expected_sum(done_ + 1);
  }
}

}  // namespace berth::load
