// The executor: one thread a process runs all operations in the order that streams, events and graphs allow.
//
// It goes round all streams that have work; each first operation whose predecessors are complete gets a step. A step
// does a bounded piece of the work (data is really moved, 16 MiB at a time) or says when to look again. Operations that
// model time on the card advance only while this process has its turn (turns.h).
//
// Everything here except advance() and the bodies of steps is guarded by the process's mutex.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "sim/shared_state.h"
#include "sim/work.h"

namespace berth::sim {

struct Stream;
struct GraphRun;

// Complete when `done`: what others wait for.
struct Ticket {
  bool done = false;
};
using TicketRef = std::shared_ptr<Ticket>;

// Time that operations of one stream still owe or have slept too long; keeps a chain of short ones exact.
struct Lane {
  int64_t debt_ns = 0;
};

struct Operation {
  Context* context = nullptr;
  Work work;
  std::shared_ptr<GraphRun> graph;  // instead of work
  std::vector<TicketRef> after;
  TicketRef ticket;
  // Progress, engine thread only:
  bool begun = false;
  int64_t begun_at = 0;
  uint64_t position = 0;
  std::shared_ptr<std::atomic<bool>> called_back;
};

struct Step {
  enum Kind { complete, more, wait, failed } kind;
  int64_t until = 0;  // wait: when to look again; INT64_MAX: somebody wakes the engine
  bool wants_card = false;
  CUresult error = CUDA_SUCCESS;
};

// The cards as this process has them during one pass.
struct CardClock {
  bool held = false;
  int64_t time = 0;  // for which this process has had the card
  int64_t last = 0, slice_start = 0;
  bool wanted = false, queued = false;
};
struct EngineView {
  int64_t now;
  CardClock* cards;
};

// execute.cpp. Engine thread, without the process's mutex.
Step advance(Operation& operation, EngineView& view, Lane& lane);
// What must happen even when the operation is not executed since its context has failed.
void abandon(Operation& operation, CUresult error);
// Waits in the lane for `duration`, on the card's clock or on the wall's.
Step pass_time(Operation& operation, EngineView& view, Lane& lane, int64_t duration, bool on_card);

// Starts the thread and waits until it has joined the shared state; false if there is no slot.
bool start_engine();
void wake_engine();
// Appends to the stream; legacy default stream rules are applied here.
TicketRef submit(Stream& stream, std::unique_ptr<Operation> operation);
// A destroyed stream stays with its context until its work is done: others wait for that work.
void forget_if_drained(Stream& stream);
// Runs on the callback thread, in order. Such functions may not call the driver.
void call_back(std::function<void()> function);
bool in_callback();

}  // namespace berth::sim
