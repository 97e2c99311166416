#include "shim/submit_call.h"

#include "abi/generated/driver_real.h"
#include "shim/driver.h"
#include "shim/streams.h"
#include "shim/work.h"

namespace berth::shim {
namespace {

// A stream that is being captured, or that may not be asked because another is: what goes there is no work yet.
bool is_captured(CallFacts facts, CUstream stream) {
  CUstreamCaptureStatus status = 0;
  CUresult result = facts.per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status) : real::cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != 0;
}

}  // namespace

void SubmitCall::begin(CallFacts facts, const Work& work) {
  pass_gate();
  uint32_t gate = gate_bits();
  if (!(gate & wire::kGateTrack)) return;
  client().tell_activity(gate & wire::kGateTell);
  // While any stream is captured we put nothing into any: what is no part of the capture waits here.
  if (berth_fork_page->captures.load(std::memory_order_relaxed)) {
    if (!is_captured(facts, work.stream)) hold_caller(client());
    return;
  }
  Streams* streams = Streams::of(client());
  StreamSlot* slot = streams ? streams->find(facts, work.stream) : nullptr;
  if (!slot) return hold_caller(client());
  cost_ = streams->costs.find(work.key);
  streams->begin(*slot, client(), gate, cost_);
  completes_ = facts.completes;
  slot_ = slot;
}

void SubmitCall::submitted() { client().streams.load(std::memory_order_acquire)->submitted(*slot_, cost_, completes_); }

}  // namespace berth::shim
