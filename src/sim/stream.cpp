#include "sim/stream.h"

#include <algorithm>
#include <cstring>

#include "sim/call.h"
#include "sim/capture.h"
#include "sim/context.h"

using namespace berth::sim;

namespace berth::sim {

Stream* per_thread_stream(Context& context) {
  thread_local std::map<uint64_t, std::weak_ptr<Stream>> streams;  // by context id
  auto& mine = streams[context.id];
  if (auto stream = mine.lock()) return stream.get();
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->id = process().next_id++;
  context.streams.push_back(stream);
  process().streams.add<CUstream>(stream);
  mine = stream;
  return stream.get();
}

}  // namespace berth::sim

namespace {

CUresult create(Call& call, CUstream* result, unsigned flags, int priority) {
  if (!result || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_shared<Stream>();
  stream->context = call.context;
  stream->flags = flags;
  stream->blocking = flags == 0;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  stream->id = process().next_id++;
  call.context->streams.push_back(stream);
  *result = process().streams.add<CUstream>(stream);
  return CUDA_SUCCESS;
}

// Returns at once; the engine still runs what is in it.
CUresult destroy(CUstream handle) {
  auto stream = process().streams.find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) abandon_capture(*stream->capture);
  stream->destroyed = true;
  forget_if_drained(*stream);
  process().streams.remove(handle);
  return CUDA_SUCCESS;
}

CUresult query(Stream* stream) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = forbid_waiting(*stream)) return bad;
  if (stream->context->error) return stream->context->error;
  auto busy = [](const Stream& each) { return each.tail && !each.tail->done; };
  bool any = busy(*stream);
  if (stream->legacy)
    for (const StreamRef& other : stream->context->streams) any |= other->blocking && busy(*other);
  else if (stream->blocking)
    any |= busy(*stream->context->legacy) && !stream->queue.empty();
  return any ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult synchronise(Call& call, Stream* stream) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = forbid_waiting(*stream)) return bad;
  Context& context = *stream->context;
  CUresult result = wait_for(call.lock, context, stream->legacy ? legacy_barrier(context) : stream->tail);
  after_synchronisation(*context.device);
  return result;
}

CUresult call_host(Stream* stream, HostWork work) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  return submit_work(*stream, work);
}

constexpr int kAttributes = 4;
unsigned char* attribute_of(Stream& stream, CUstreamAttrID id) {
  switch (id) {  // CU_LAUNCH_ATTRIBUTE_: access policy window, synchronization policy, priority, memory domain
    case 1:
      return stream.attributes[0];
    case 3:
      return stream.attributes[1];
    case 9:
      return stream.attributes[2];
    case 10:
      return stream.attributes[3];
    default:
      return nullptr;
  }
}
constexpr size_t kAttributeBytes = 64;

CUresult get_attribute(Stream* stream, CUstreamAttrID id, CUstreamAttrValue* value) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (id == 8) return std::memcpy(static_cast<void*>(value), &stream->priority, sizeof stream->priority), CUDA_SUCCESS;
  const unsigned char* kept = attribute_of(*stream, id);
  if (!kept) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(static_cast<void*>(value), kept, kAttributeBytes);
  return CUDA_SUCCESS;
}

CUresult set_attribute(Stream* stream, CUstreamAttrID id, const CUstreamAttrValue* value) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (id == 8)
    return std::memcpy(&stream->priority, static_cast<const void*>(value), sizeof stream->priority), CUDA_SUCCESS;
  unsigned char* kept = attribute_of(*stream, id);
  if (!kept) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(kept, static_cast<const void*>(value), kAttributeBytes);
  return CUDA_SUCCESS;
}

CUresult copy_attributes(Stream* to, const Stream* from) {
  if (!to || !from) return CUDA_ERROR_INVALID_HANDLE;
  std::memcpy(to->attributes, from->attributes, kAttributes * kAttributeBytes);
  to->priority = from->priority;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  SIM_CALL(kContext);
  return create(call, stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  SIM_CALL(kContext);
  return create(call, stream, flags, priority);
}

CUresult cuStreamDestroy(CUstream stream) {
  SIM_CALL(kDriver);
  return destroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_CALL(kDriver);
  return destroy(stream);
}

SIM_BOTH_FLAVOURS(cuStreamQuery, _ptsz, (CUstream stream), {
  SIM_CALL(kContext | kUnsafe);
  return query(stream_of(call, stream, flavour));
})

SIM_BOTH_FLAVOURS(cuStreamSynchronize, _ptsz, (CUstream stream), {
  SIM_CALL(kContext | kUnsafe);
  return synchronise(call, stream_of(call, stream, flavour));
})

SIM_BOTH_FLAVOURS(cuStreamAddCallback, _ptsz, (CUstream stream, CUstreamCallback callback, void* data, unsigned flags),
                  {
                    SIM_CALL(kContext);
                    if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
                    Stream* target = stream_of(call, stream, flavour);
                    if (target && target->capture)
                      return invalidate_by(*target->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                    return call_host(target, HostWork{nullptr, callback, stream, data});
                  })

SIM_BOTH_FLAVOURS(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* data), {
  SIM_CALL(kContext);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return call_host(stream_of(call, stream, flavour), HostWork{function, nullptr, nullptr, data});
})

SIM_BOTH_FLAVOURS(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext* context), {
  SIM_CALL(kContext);
  const Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(target->context);
  return CUDA_SUCCESS;
})

SIM_BOTH_FLAVOURS(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice* device), {
  SIM_CALL(kContext);
  const Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = target->context->device->ordinal;
  return CUDA_SUCCESS;
})

SIM_BOTH_FLAVOURS(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned* flags), {
  SIM_CALL(kContext);
  const Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = target->flags;
  return CUDA_SUCCESS;
})

SIM_BOTH_FLAVOURS(cuStreamGetPriority, _ptsz, (CUstream stream, int* priority), {
  SIM_CALL(kContext);
  const Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  *priority = target->priority;
  return CUDA_SUCCESS;
})

SIM_BOTH_FLAVOURS(cuStreamGetId, _ptsz, (CUstream stream, uint64_t* id), {
  SIM_CALL(kContext);
  const Stream* target = stream_of(call, stream, flavour);
  if (!target) return CUDA_ERROR_INVALID_HANDLE;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  *id = target->id;
  return CUDA_SUCCESS;
})

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* context) {
  SIM_CALL(kContext);
  if (!stream_of(call, stream, Flavour::legacy)) return CUDA_ERROR_INVALID_HANDLE;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = nullptr;
  return CUDA_SUCCESS;
}

SIM_BOTH_FLAVOURS(cuStreamGetAttribute, _ptsz, (CUstream stream, CUstreamAttrID id, CUstreamAttrValue* value), {
  SIM_CALL(kContext);
  return get_attribute(stream_of(call, stream, flavour), id, value);
})

SIM_BOTH_FLAVOURS(cuStreamSetAttribute, _ptsz, (CUstream stream, CUstreamAttrID id, const CUstreamAttrValue* value), {
  SIM_CALL(kContext);
  return set_attribute(stream_of(call, stream, flavour), id, value);
})

SIM_BOTH_FLAVOURS(cuStreamCopyAttributes, _ptsz, (CUstream to, CUstream from), {
  SIM_CALL(kContext);
  const Stream* source = stream_of(call, from, flavour);
  return copy_attributes(stream_of(call, to, flavour), source);
})

}  // extern "C"
