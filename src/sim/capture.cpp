#include "sim/capture.h"

#include <algorithm>
#include <set>

#include "sim/call.h"
#include "sim/graph_memory.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

enum Mode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

thread_local int thread_mode = kGlobal;

std::vector<std::shared_ptr<Capture>>& active() {
  static auto* const list = new std::vector<std::shared_ptr<Capture>>;
  return *list;
}

bool mine(const Capture& capture) { return pthread_equal(capture.thread, pthread_self()) != 0; }

void leave(Capture& capture) {
  capture.ended = true;
  for (Stream* stream : capture.streams) {
    stream->capture_after.clear();
    stream->capture = nullptr;
  }
}

// The caller keeps a reference.
void end(const std::shared_ptr<Capture>& capture) {
  leave(*capture);
  std::erase(active(), capture);
}

Capture* blocking_capture(const Context& context) {
  for (const auto& capture : active())
    if (capture->valid && capture->origin->context == &context)
      for (const Stream* stream : capture->streams)
        if (stream->blocking) return capture.get();
  return nullptr;
}

void add_unique(std::vector<GraphNode*>& nodes, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

// Everything captured is an ancestor of where the origin stands.
bool all_joined(const Capture& capture) {
  std::set<const GraphNode*> reached;
  std::vector<const GraphNode*> open(capture.origin->capture_after.begin(), capture.origin->capture_after.end());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (reached.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const Stream* stream : capture.streams)
    for (const GraphNode* node : stream->capture_after)
      if (!reached.count(node)) return false;
  return true;
}

CUresult begin(Stream* stream, int mode, std::shared_ptr<Graph> into, std::vector<GraphNode*> after) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return static_cast<CUresult>(401);  // CUDA_ERROR_ILLEGAL_STATE
  auto capture = std::make_shared<Capture>();
  capture->id = process().next_id++;
  capture->own_graph = !into;
  capture->graph = into ? std::move(into) : std::make_shared<Graph>();
  if (capture->own_graph) graphs().add<CUgraph>(capture->graph);  // its handle may be asked for
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->origin = stream;
  capture->streams = {stream};
  stream->capture = capture;
  stream->capture_after = std::move(after);
  active().push_back(capture);
  return CUDA_SUCCESS;
}

CUresult finish(Stream* stream, CUgraph* graph) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (graph) *graph = nullptr;
  auto capture = stream->capture;
  if (!capture) return static_cast<CUresult>(401);
  if (capture->origin != stream) return invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != kRelaxed && !mine(*capture)) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult result = CUDA_SUCCESS;
  if (!capture->valid)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!all_joined(*capture))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  end(capture);
  if ((result || !graph) && capture->own_graph)
    remove_graph(capture->graph);
  else if (graph && !result)
    *graph = reinterpret_cast<CUgraph>(capture->graph.get());
  return result;
}

}  // namespace

CUresult invalidate_by(Capture& capture, CUresult error) {
  capture.valid = false;
  return error;
}

void abandon_capture(Capture& capture) {
  for (const auto& each : active())
    if (each.get() == &capture) {
      auto keep = each;
      capture.valid = false;
      if (capture.own_graph) remove_graph(capture.graph);
      return end(keep);
    }
}

void abandon_captures(const Context& context) {
  auto all = active();
  for (const auto& capture : all)
    if (capture->origin->context == &context) abandon_capture(*capture);
}

CUresult forbid_in_capture() {
  if (thread_mode == kRelaxed) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : active()) {
    bool endangered = mine(*capture) ? capture->mode != kRelaxed : capture->mode == kGlobal && thread_mode == kGlobal;
    if (endangered) result = invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult forbid_implicit(const Stream& stream) {
  Capture* capture = stream.legacy ? blocking_capture(*stream.context) : nullptr;
  return capture ? invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult forbid_waiting(const Stream& stream) {
  if (stream.capture) return invalidate_by(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return forbid_implicit(stream);
}

CUresult forbid_waiting(const Context& context) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : active())
    if (capture->origin->context == &context) result = invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return result;
}

CUresult capture_work(Stream& stream, Work work) {
  Capture& capture = *stream.capture;
  if (!capture.valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.capture_after = {add_node(*capture.graph, stream.capture_after, std::move(work))};
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream& stream, Event& event) {
  if (!stream.capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture = stream.capture;
  event.capture_after = stream.capture_after;
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, Event& event) {
  if (!event.capture) {
    if (!event.record) return CUDA_SUCCESS;
    return invalidate_by(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  auto capture = event.capture;
  if (capture->ended) return CUDA_ERROR_INVALID_VALUE;
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.legacy) return invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (!stream.capture) {
    stream.capture = capture;
    capture->streams.push_back(&stream);
  } else if (stream.capture != capture) {
    invalidate_by(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return invalidate_by(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  add_unique(stream.capture_after, event.capture_after);
  return CUDA_SUCCESS;
}

CUresult capture_allocation(Stream& stream, const Device& device, uint64_t bytes, CUdeviceptr* pointer) {
  auto address = std::make_shared<GraphAddress>(bytes);
  if (!address->start) return CUDA_ERROR_OUT_OF_MEMORY;
  GraphAllocWork work{};
  work.params.poolProps.allocType = 1;
  work.params.poolProps.location = {1, device.ordinal};
  work.params.bytesize = bytes;
  work.params.dptr = address->start;
  work.address = address;
  CUresult result = capture_work(stream, work);
  if (!result) *pointer = address->start;
  return result;
}

CUresult capture_free(Stream& stream, uint64_t address) { return capture_work(stream, GraphFreeWork{address}); }

}  // namespace berth::sim

namespace {

struct Info {
  CUstreamCaptureStatus* status;
  uint64_t* id;
  CUgraph* graph;
  const CUgraphNode** after;
  const CUgraphEdgeData** edges;
  size_t* count;
};

CUresult describe(const Stream* stream, const Info& info) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!info.status) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy && blocking_capture(*stream->context)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const auto& capture = stream->capture;
  *info.status = !capture ? 0 : capture->valid ? 1 : 2;
  if (!capture || !capture->valid) return CUDA_SUCCESS;
  if (info.id) *info.id = capture->id;
  if (info.graph) *info.graph = reinterpret_cast<CUgraph>(capture->graph.get());
  if (info.after) *info.after = reinterpret_cast<const CUgraphNode*>(stream->capture_after.data());
  if (info.edges) *info.edges = nullptr;
  if (info.count) *info.count = stream->capture_after.size();
  return CUDA_SUCCESS;
}

bool nodes_of(const CUgraphNode* handles, size_t count, std::vector<GraphNode*>* nodes) {
  if (count && !handles) return false;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = node_of(handles[i]);
    if (!node) return false;
    nodes->push_back(node);
  }
  return true;
}

CUresult update(Stream* stream, const CUgraphNode* handles, size_t count, unsigned flags) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<GraphNode*> nodes;
  if (flags > 1 || !nodes_of(handles, count, &nodes)) return CUDA_ERROR_INVALID_VALUE;
  if (!stream->capture) return static_cast<CUresult>(401);
  if (!stream->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags == 1) stream->capture_after.clear();
  add_unique(stream->capture_after, nodes);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

SIM_BOTH_FLAVOURS(cuStreamBeginCapture, _ptsz, (CUstream stream), {
  SIM_CALL(kContext);
  return begin(stream_of(call, stream, flavour), kGlobal, nullptr, {});
})

SIM_BOTH_FLAVOURS(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode), {
  SIM_CALL(kContext);
  return begin(stream_of(call, stream, flavour), mode, nullptr, {});
})

SIM_BOTH_FLAVOURS(cuStreamBeginCaptureToGraph, _ptsz,
                  (CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*, size_t count,
                   CUstreamCaptureMode mode),
                  {
                    SIM_CALL(kContext);
                    auto into = graphs().find(graph);
                    std::vector<GraphNode*> nodes;
                    if (!into || !nodes_of(after, count, &nodes)) return CUDA_ERROR_INVALID_VALUE;
                    return begin(stream_of(call, stream, flavour), mode, into, std::move(nodes));
                  })

SIM_BOTH_FLAVOURS(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph* graph), {
  SIM_CALL(kContext);
  return finish(stream_of(call, stream, flavour), graph);
})

SIM_BOTH_FLAVOURS(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status), {
  SIM_CALL(kContext);
  return describe(stream_of(call, stream, flavour), {status, nullptr, nullptr, nullptr, nullptr, nullptr});
})

SIM_BOTH_FLAVOURS(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id), {
  SIM_CALL(kContext);
  return describe(stream_of(call, stream, flavour), {status, id, nullptr, nullptr, nullptr, nullptr});
})

SIM_BOTH_FLAVOURS(cuStreamGetCaptureInfo_v2, _ptsz,
                  (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph,
                   const CUgraphNode** after, size_t* count),
                  {
                    SIM_CALL(kContext);
                    return describe(stream_of(call, stream, flavour), {status, id, graph, after, nullptr, count});
                  })

SIM_BOTH_FLAVOURS(cuStreamGetCaptureInfo_v3, _ptsz,
                  (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph,
                   const CUgraphNode** after, const CUgraphEdgeData** edges, size_t* count),
                  {
                    SIM_CALL(kContext);
                    return describe(stream_of(call, stream, flavour), {status, id, graph, after, edges, count});
                  })

SIM_BOTH_FLAVOURS(cuStreamUpdateCaptureDependencies, _ptsz,
                  (CUstream stream, CUgraphNode* after, size_t count, unsigned flags), {
                    SIM_CALL(kContext);
                    return update(stream_of(call, stream, flavour), after, count, flags);
                  })

SIM_BOTH_FLAVOURS(cuStreamUpdateCaptureDependencies_v2, _ptsz,
                  (CUstream stream, CUgraphNode* after, const CUgraphEdgeData*, size_t count, unsigned flags), {
                    SIM_CALL(kContext);
                    return update(stream_of(call, stream, flavour), after, count, flags);
                  })

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIM_CALL(kDriver);
  if (!mode || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
