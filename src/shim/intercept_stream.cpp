// The program's own synchronisations, after which pools may have given memory back; and captures, during which we issue
// nothing that could break one.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/pools.h"

namespace berth::shim::intercept {
namespace {

CUresult synchronised(SyncCall& call, CUresult result) {
  if (result == CUDA_SUCCESS) {
    settle_all_pools(call.client());
    settle_all_graph_memory(call.client());
  }
  return result;
}

CUresult capture_began(CUresult result) {
  ForkPage* page = result == CUDA_SUCCESS ? writable_fork_page() : nullptr;
  if (page) page->captures.fetch_add(1, std::memory_order_relaxed);
  return result;
}

}  // namespace

CUresult cuCtxSynchronize(SyncCall& call, decltype(&::cuCtxSynchronize) real) { return synchronised(call, real()); }
CUresult cuCtxSynchronize_v2(SyncCall& call, decltype(&::cuCtxSynchronize_v2) real, CUcontext context) {
  return synchronised(call, real(context));
}
CUresult cuStreamSynchronize(SyncCall& call, decltype(&::cuStreamSynchronize) real, CUstream stream) {
  return synchronised(call, real(stream));
}
CUresult cuEventSynchronize(SyncCall& call, decltype(&::cuEventSynchronize) real, CUevent event) {
  return synchronised(call, real(event));
}

CUresult cuStreamBeginCapture(ContextCall&, decltype(&::cuStreamBeginCapture) real, CUstream stream) {
  return capture_began(real(stream));
}
CUresult cuStreamBeginCapture_v2(ContextCall&, decltype(&::cuStreamBeginCapture_v2) real, CUstream stream, CUstreamCaptureMode mode) {
  return capture_began(real(stream, mode));
}
CUresult cuStreamBeginCaptureToGraph(ContextCall&, decltype(&::cuStreamBeginCaptureToGraph) real, CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* edges, size_t count,
                                     CUstreamCaptureMode mode) {
  return capture_began(real(stream, graph, dependencies, edges, count, mode));
}

// A capture ends with this call whatever it answers (an invalidated one too), unless there was none.
CUresult cuStreamEndCapture(ContextCall&, decltype(&::cuStreamEndCapture) real, CUstream stream, CUgraph* graph) {
  CUresult result = real(stream, graph);
  std::atomic<uint32_t>& captures = berth_fork_page->captures;
  uint32_t count = captures.load(std::memory_order_relaxed);
  bool ended = result == CUDA_SUCCESS || (result >= CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && result <= CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  while (ended && count && !captures.compare_exchange_weak(count, count - 1, std::memory_order_relaxed)) {}
  return result;
}

}  // namespace berth::shim::intercept
