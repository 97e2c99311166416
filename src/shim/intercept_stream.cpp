// The program's own synchronisations, after which pools may have given memory back and streams are known to be idle; streams
// that end; and captures, during which we issue
// nothing that could break one.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/pools.h"
#include "shim/streams.h"
#include "shim/submit_call.h"

namespace berth::shim::intercept {
namespace {

// While submissions are tracked a synchronisation tells what is complete without asking the device.
Streams* tracked(SyncCall& call) {
  return gate_bits() & wire::kGateTrack ? call.client().streams.load(std::memory_order_acquire) : nullptr;
}

CUresult settled(SyncCall& call, CUresult result) {
  if (result == CUDA_SUCCESS) {
    settle_all_pools(call.client());
    settle_all_graph_memory(call.client());
  }
  return result;
}

// `per_thread`: the flavour of the call, for which stream 0 is the thread's own.
template <class Real>
CUresult of_stream(SyncCall& call, bool per_thread, CUstream stream, Real real) {
  Streams* streams = tracked(call);
  StreamSlot* slot = streams ? streams->known({per_thread, false}, stream) : nullptr;
  if (!slot) return real();
  Streams::Snapshot snapshot = streams->before(*slot);
  CUresult result = real();
  if (result == CUDA_SUCCESS) streams->after(*slot, snapshot);
  return result;
}

template <class Real>
CUresult of_context(SyncCall& call, CUcontext context, Real real) {
  Streams* streams = tracked(call);
  if (!streams || (!context && real::cuCtxGetCurrent(&context) != CUDA_SUCCESS)) return settled(call, real());
  Streams::Snapshot snapshots[wire::kActivitySlots];
  StreamSlot* slots[wire::kActivitySlots];
  uint32_t count = 0;
  streams->for_each(context, [&](StreamSlot& slot) {
    slots[count] = &slot;
    snapshots[count++] = streams->before(slot);
  });
  CUresult result = real();
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; ++i) streams->after(*slots[i], snapshots[i]);
  return settled(call, result);
}

CUresult capture_began(CUresult result) {
  ForkPage* page = result == CUDA_SUCCESS ? writable_fork_page() : nullptr;
  if (page) page->captures.fetch_add(1, std::memory_order_relaxed);
  return result;
}

}  // namespace

CUresult cuCtxSynchronize(SyncCall& call, decltype(&::cuCtxSynchronize) real) { return of_context(call, nullptr, real); }
CUresult cuCtxSynchronize_v2(SyncCall& call, decltype(&::cuCtxSynchronize_v2) real, CUcontext context) {
  return of_context(call, context, [&] { return real(context); });
}
CUresult cuStreamSynchronize(SyncCall& call, decltype(&::cuStreamSynchronize) real, CUstream stream) {
  return settled(call, of_stream(call, real == &real::cuStreamSynchronize_ptsz, stream, [&] { return real(stream); }));
}
CUresult cuStreamQuery(SyncCall& call, decltype(&::cuStreamQuery) real, CUstream stream) {
  return of_stream(call, real == &real::cuStreamQuery_ptsz, stream, [&] { return real(stream); });
}
CUresult cuEventSynchronize(SyncCall& call, decltype(&::cuEventSynchronize) real, CUevent event) { return settled(call, real(event)); }

CUresult cuStreamDestroy(FreeCall& call, decltype(&::cuStreamDestroy) real, CUstream stream) {
  if (Streams* streams = call.client().streams.load(std::memory_order_acquire)) streams->forget_stream(stream);
  return real(stream);
}
CUresult cuStreamDestroy_v2(FreeCall& call, decltype(&::cuStreamDestroy_v2) real, CUstream stream) {
  if (Streams* streams = call.client().streams.load(std::memory_order_acquire)) streams->forget_stream(stream);
  return real(stream);
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
