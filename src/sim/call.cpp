#include "sim/call.h"

#include "sim/capture.h"
#include "sim/stream.h"

namespace berth::sim {
namespace {

std::atomic<CUstream> the_last_stream{nullptr};

// A destroyed context says so; a failed one repeats its error.
CUresult check_context(Context* context, unsigned needs) {
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error && !(needs & kEvenFailed)) return context->error;
  return CUDA_SUCCESS;
}

}  // namespace

Call::Call(Entry& entry, unsigned needs) {
  result = static_cast<CUresult>(pass_entry(entry));
  if (result || needs == kNothing) return;
  switch (life()) {
    case Life::alive:
      break;
    case Life::over:
      result = CUDA_ERROR_DEINITIALIZED;
      return;
    default:
      result = CUDA_ERROR_NOT_INITIALIZED;
      return;
  }
  if (in_callback()) {
    result = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  lock = Lock(process().mutex);
  if (!context_stack().empty()) context = context_stack().back();
  if (needs & kContext) result = check_context(context, needs);
  if (!result && (needs & kUnsafe)) result = forbid_in_capture();
  if (result) lock.unlock();
}

ContextStack& context_stack() {
  static thread_local constinit ContextStack stack{};
  return stack;
}

Stream* stream_of(Call& call, CUstream stream, Flavour flavour) {
  auto number = reinterpret_cast<uintptr_t>(stream);
  if (number == 0 && flavour == Flavour::per_thread) number = 2;
  the_last_stream = reinterpret_cast<CUstream>(number);
  if (number == 2) return per_thread_stream(*call.context);
  if (number < 2) return call.context->legacy.get();
  return process().streams.find(stream).get();
}

CUstream last_stream() { return the_last_stream; }

Context* known_context(CUcontext handle) {
  for (const auto& context : process().contexts)
    if (reinterpret_cast<CUcontext>(context.get()) == handle) return context.get();
  return nullptr;
}

Context* context_of(CUcontext handle) {
  Context* context = known_context(handle);
  return context && context->alive ? context : nullptr;
}

Device* device_of(CUdevice ordinal) {
  auto& devices = process().devices;
  return ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size() ? devices[static_cast<size_t>(ordinal)].get()
                                                                       : nullptr;
}

CUresult submit_work(Stream& stream, Work work, TicketRef* ticket) {
  if (stream.capture) return capture_work(stream, std::move(work));
  if (CUresult result = forbid_implicit(stream)) return result;
  auto operation = std::make_unique<Operation>();
  operation->work = std::move(work);
  TicketRef submitted = submit(stream, std::move(operation));
  if (ticket) *ticket = submitted;
  return CUDA_SUCCESS;
}

CUresult run_work(Call& call, Stream& stream, Work work) {
  TicketRef ticket;
  if (CUresult result = submit_work(stream, std::move(work), &ticket)) return result;
  return wait_for(call.lock, *stream.context, ticket);
}

}  // namespace berth::sim
