#include "sim/event.h"

#include <chrono>

#include "sim/call.h"
#include "sim/capture.h"
#include "sim/context.h"

using namespace berth::sim;

namespace berth::sim {

Registry<Event>& events() {
  static auto* const registry = new Registry<Event>;
  return *registry;
}

std::shared_ptr<Record> last_record(const Event& event) {
  if (event.shared < 0) return event.record;
  auto record = std::make_shared<Record>();
  record->shared = event.shared;
  record->number = state().events[event.shared].recorded;
  return record;
}

std::shared_ptr<Record> new_record(Event& event) {
  auto record = std::make_shared<Record>();
  record->shared = event.shared;
  if (event.shared >= 0) record->number = state().events[event.shared].recorded.fetch_add(1) + 1;
  event.record = record;
  event.capture = nullptr;
  return record;
}

void complete_record(Record& record) {
  record.done = true;
  record.time_ns = now_ns();
  if (record.shared < 0) return;
  auto& completed = state().events[record.shared].completed;
  for (uint64_t seen = completed; seen < record.number && !completed.compare_exchange_weak(seen, record.number);) {
  }
}

bool is_complete(Record& record) {
  if (!record.done && record.shared >= 0 && state().events[record.shared].completed >= record.number)
    record.done = true;
  return record.done;
}

}  // namespace berth::sim

namespace {

int take_shared_event() {
  StateLock lock;
  for (int i = 0; i < kMaxEvents; ++i) {
    SharedEvent& each = state().events[i];
    if (each.owner) continue;
    each.recorded = each.completed = 0;
    each.owner = static_cast<uint32_t>(own_slot() + 1);
    return i;
  }
  return -1;
}

CUresult destroy(CUevent handle) {
  auto event = events().find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->made_shared) {
    StateLock lock;
    state().events[event->shared].owner = 0;
  }
  events().remove(handle);
  return CUDA_SUCCESS;
}

CUresult record(CUevent handle, Stream* stream, unsigned flags) {
  auto event = events().find(handle);
  if (!event || !stream) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (stream->context->device != event->context->device) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture)
    return flags ? capture_work(*stream, RecordWork{event, nullptr}) : capture_record(*stream, *event);
  if (flags) return CUDA_ERROR_INVALID_VALUE;  // external records are for captures
  if (CUresult bad = forbid_implicit(*stream)) return bad;
  return submit_work(*stream, RecordWork{event, new_record(*event)});
}

CUresult wait(Stream* stream, CUevent handle, unsigned flags) {
  auto event = events().find(handle);
  if (!event || !stream) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture && flags) return capture_work(*stream, WaitWork{event, nullptr});
  if (stream->capture || event->capture) return capture_wait(*stream, *event);
  auto record = last_record(*event);
  if (!record || is_complete(*record)) return stream->context->error;
  return submit_work(*stream, WaitWork{event, record});
}

// Captured events have no completion to ask for.
CUresult find_plain(CUevent handle, std::shared_ptr<Event>* event) {
  *event = events().find(handle);
  if (!*event) return CUDA_ERROR_INVALID_HANDLE;
  return (*event)->capture ? invalidate_by(*(*event)->capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent from, CUevent to) {
  auto first = events().find(from), second = events().find(to);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!first || !second || (first->flags | second->flags) & kEventNoTiming) return CUDA_ERROR_INVALID_HANDLE;
  if (!first->record || !second->record) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_complete(*first->record) || !is_complete(*second->record)) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(second->record->time_ns - first->record->time_ns) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* result, unsigned flags) {
  SIM_CALL(kContext);
  if (!result || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (flags & kEventInterprocess && !(flags & kEventNoTiming)) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = call.context;
  event->flags = flags;
  event->made_shared = (flags & kEventInterprocess) != 0;
  if (event->made_shared && (event->shared = take_shared_event()) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *result = events().add<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  SIM_CALL(kDriver);
  return destroy(event);
}

CUresult cuEventDestroy_v2(CUevent event) {
  SIM_CALL(kDriver);
  return destroy(event);
}

SIM_BOTH_FLAVOURS(cuEventRecord, _ptsz, (CUevent event, CUstream stream), {
  SIM_CALL(kContext);
  return record(event, stream_of(call, stream, flavour), 0);
})

SIM_BOTH_FLAVOURS(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), {
  SIM_CALL(kContext);
  return record(event, stream_of(call, stream, flavour), flags);
})

SIM_BOTH_FLAVOURS(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), {
  SIM_CALL(kContext);
  return wait(stream_of(call, stream, flavour), event, flags);
})

CUresult cuEventQuery(CUevent handle) {
  SIM_CALL(kDriver | kUnsafe);
  std::shared_ptr<Event> event;
  if (CUresult bad = find_plain(handle, &event)) return bad;
  if (event->context->error) return event->context->error;
  auto record = last_record(*event);
  return !record || is_complete(*record) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  SIM_CALL(kDriver | kUnsafe);
  std::shared_ptr<Event> event;
  if (CUresult bad = find_plain(handle, &event)) return bad;
  auto record = last_record(*event);
  // An event of several processes is completed without a word to us.
  while (record && !is_complete(*record))
    process().done.wait_for(call.lock, std::chrono::milliseconds(record->shared < 0 ? 100 : 1));
  after_synchronisation(*event->context->device);
  return event->context->error;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  SIM_CALL(kDriver);
  return elapsed(milliseconds, from, to);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  SIM_CALL(kDriver);
  return elapsed(milliseconds, from, to);
}

}  // extern "C"
