// Capturing of streams into graphs, and what may not be done meanwhile. All under the process's mutex.
#pragma once
#include <pthread.h>

#include "sim/event.h"
#include "sim/graph.h"

namespace berth::sim {

struct Capture {
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  bool own_graph = true;  // not begun into an existing graph
  int mode = 0;           // CUstreamCaptureMode: global, thread-local, relaxed
  pthread_t thread{};
  Stream* origin = nullptr;
  std::vector<Stream*> streams;
  bool valid = true, ended = false;
};

// A call that is unsafe in a capture: refused, and the captures it endangers are lost.
CUresult forbid_in_capture();
// Work in the legacy stream, which a captured blocking stream would have to wait for.
CUresult forbid_implicit(const Stream& stream);
// Waiting for a captured stream, or asking whether it is done.
CUresult forbid_waiting(const Stream& stream);
CUresult forbid_waiting(const Context& context);
// The capture is lost; returns `error`.
CUresult invalidate_by(Capture& capture, CUresult error);
void abandon_capture(Capture& capture);
void abandon_captures(const Context& context);

// The work becomes a node that comes after what the stream has captured so far.
CUresult capture_work(Stream& stream, Work work);
CUresult capture_record(Stream& stream, Event& event);
CUresult capture_wait(Stream& stream, Event& event);
CUresult capture_allocation(Stream& stream, const Device& device, uint64_t bytes, CUdeviceptr* pointer);
CUresult capture_free(Stream& stream, uint64_t address);

}  // namespace berth::sim
