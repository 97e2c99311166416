#include "shim/submit_call.h"

#include "abi/generated/driver_real.h"
#include "shim/driver.h"
#include "shim/streams.h"
#include "shim/work.h"

namespace berth::shim {

bool is_captured(CallFacts facts, CUstream stream) {
  CUstreamCaptureStatus status = 0;
  CUresult result = facts.per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status) : real::cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != 0;
}

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
  gate_ = gate;
  slot_ = slot;
}

void SubmitCall::ended(CUresult result) {
  Streams* streams = client().streams.load(std::memory_order_acquire);
  if (result == CUDA_SUCCESS) streams->submitted(*slot_, cost_, completes_);
  else streams->refused(*slot_);
}

uint64_t SubmitCall::known_ns() const { return CostTable::is_known(cost_) ? CostTable::length_ns(cost_) : 0; }

bool SubmitCall::begin_span(const Work& work, uint32_t submissions) {
  Streams* streams = client().streams.load(std::memory_order_acquire);
  if (!streams->begin_span(*slot_, client(), submissions)) return false;
  span_ = slot_;
  cost_ = streams->costs.find(work.key);
  return true;
}

void SubmitCall::next(CallFacts facts, const Work& work) {
  done(CUDA_SUCCESS);
  slot_ = nullptr;
  begin(facts, work);
}

void SubmitCall::end_span() {
  client().streams.load(std::memory_order_acquire)->end_span(*span_);
  span_ = nullptr;
}

}  // namespace berth::shim
