#include "sim/context.h"

#include <algorithm>

#include "sim/call.h"
#include "sim/capture.h"
#include "sim/graph_memory.h"
#include "sim/identity.h"
#include "sim/memory.h"
#include "sim/module.h"
#include "sim/pool.h"
#include "sim/settings.h"
#include "sim/stream.h"

using namespace berth::sim;

namespace berth::sim {

void make_device(int card) {
  auto device = std::make_unique<Device>();
  device->ordinal = static_cast<int>(process().devices.size());
  device->card = card;
  auto primary = std::make_unique<Context>();
  primary->device = device.get();
  primary->primary = true;
  device->primary = primary.get();
  device->default_pool = device->current_pool = make_pool(*device, nullptr);
  device->graph_memory = std::make_shared<GraphMemory>();
  device->graph_memory->card = card;
  process().contexts.push_back(std::move(primary));
  process().devices.push_back(std::move(device));
}

CUresult open_context(Context& context, unsigned flags, unsigned api_version) {
  Device& device = *context.device;
  if (!device.contexts && !claim_contexts(device.card)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  context.memory = take_physical(device.card, settings().context_bytes, PageKind::context);
  if (!context.memory) {
    if (!device.contexts) give_up_contexts(device.card);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++device.contexts;
  context.alive = true;
  context.error = CUDA_SUCCESS;
  context.flags = flags;
  context.api_version = api_version;
  context.id = process().next_id++;
  constexpr size_t kDefaults[kLimits] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};
  std::copy(std::begin(kDefaults), std::end(kDefaults), context.limits);
  context.legacy = std::make_shared<Stream>();
  context.legacy->context = &context;
  context.legacy->legacy = true;
  context.legacy->id = process().next_id++;
  return CUDA_SUCCESS;
}

void close_context(Lock& lock, Context& context) {
  context.alive = false;
  context.closing = true;
  context.error = CUDA_ERROR_CONTEXT_IS_DESTROYED;  // the engine drops what has not begun
  abandon_captures(context);
  wake_engine();
  wait_for_context(lock, context);
  for (const StreamRef& stream : context.streams) {
    stream->destroyed = true;
    process().streams.remove(stream.get());
  }
  context.streams.clear();
  after_synchronisation(*context.device);
  drop_memory_of(context);
  drop_modules_of(context);
  context.stack_memory.clear();
  context.memory = context.graph_memory = nullptr;
  context.peers.clear();
  for (const auto& other : process().contexts) std::erase(other->peers, &context);
  if (--context.device->contexts == 0) give_up_contexts(context.device->card);
  if (context.device->primary == &context) after_synchronisation(*context.device);
  context.closing = false;
  process().done.notify_all();
}

void after_synchronisation(Device& device) {
  std::erase_if(device.freed_later, [](const auto& each) {
    if (each.first->done) drop_range(each.second);
    return each.first->done;
  });
  trim_after_synchronisation(device);
}

}  // namespace berth::sim

namespace {

CUresult create(Call& call, CUcontext* result, unsigned flags, CUdevice ordinal, unsigned api_version) {
  if (!result || flags & ~0xffu) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  auto context = std::make_unique<Context>();
  context->device = device;
  context->uses = 1;
  if (CUresult bad = open_context(*context, flags, api_version)) return bad;
  *result = reinterpret_cast<CUcontext>(context.get());
  context_stack().push_back(context.get());
  call.context = context.get();
  process().contexts.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult destroy(Call& call, CUcontext handle) {
  Context* context = context_of(handle);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  close_context(call.lock, *context);
  return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
  Context* context = context_of(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* result) {
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (result) *result = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult synchronise(Call& call, Context& context) {
  if (CUresult bad = forbid_waiting(context)) return bad;
  CUresult result = wait_for_context(call.lock, context);
  after_synchronisation(*context.device);
  return result;
}

// A bigger stack takes memory for every thread that can be resident; a smaller one gives none back.
CUresult set_stack_limit(Context& context, size_t value) {
  size_t& limit = context.limits[0];
  size_t reserved = 1024;
  for (const PhysicalRef& part : context.stack_memory)
    reserved += part->bytes / (kMultiprocessors * kThreadsPerMultiprocessor);
  if (value > 512 << 10) return CUDA_ERROR_INVALID_VALUE;
  if (value > reserved) {
    auto more = take_physical(context.device->card, (value - reserved) * kMultiprocessors * kThreadsPerMultiprocessor);
    if (!more) return CUDA_ERROR_OUT_OF_MEMORY;
    context.stack_memory.push_back(more);
  }
  limit = value;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  SIM_CALL(kDriver);
  return create(call, context, flags, device, 3010);
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  SIM_CALL(kDriver);
  return create(call, context, flags, device, 3020);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device) {
  SIM_CALL(kDriver);
  if (affinity || count) return static_cast<CUresult>(224);  // CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: needs MPS
  return create(call, context, flags, device, 3020);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice device) {
  SIM_CALL(kDriver);
  return create(call, context, flags, device, 3020);
}

CUresult cuCtxDestroy(CUcontext context) {
  SIM_CALL(kDriver);
  return destroy(call, context);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  SIM_CALL(kDriver);
  return destroy(call, context);
}

CUresult cuCtxAttach(CUcontext* result, unsigned flags) {
  SIM_CALL(kContext);
  if (!result || flags) return CUDA_ERROR_INVALID_VALUE;
  ++call.context->uses;
  *result = reinterpret_cast<CUcontext>(call.context);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
  SIM_CALL(kDriver);
  Context* context = context_of(handle);
  if (!context || context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
  return --context->uses ? CUDA_SUCCESS : destroy(call, handle);
}

CUresult cuCtxPushCurrent(CUcontext context) {
  SIM_CALL(kDriver);
  return push(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIM_CALL(kDriver);
  return push(context);
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  SIM_CALL(kDriver);
  return pop(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  SIM_CALL(kDriver);
  return pop(context);
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  SIM_CALL(kDriver);
  auto& stack = context_stack();
  Context* context = known_context(handle);  // recorded: a destroyed one may be made current, and fails then
  if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  SIM_CALL(kDriver);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(call.context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  SIM_CALL(kContext | kEvenFailed);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = call.context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  SIM_CALL(kDriver);
  Context* context = handle ? context_of(handle) : call.context;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  SIM_CALL(kContext | kEvenFailed);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, uint64_t* id) {
  SIM_CALL(kDriver);
  const Context* context = handle ? context_of(handle) : call.context;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  SIM_CALL(kDriver);
  const Context* context = handle ? context_of(handle) : call.context;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  SIM_CALL(kContext);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = call.context->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SIM_CALL(kContext);
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;
  call.context->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIM_CALL(kContext);
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  SIM_CALL(kContext);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit > 6) return static_cast<CUresult>(215);  // CUDA_ERROR_UNSUPPORTED_LIMIT
  *value = call.context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIM_CALL(kContext);
  if (limit < 0 || limit > 6) return static_cast<CUresult>(215);
  if (limit == 0) return set_stack_limit(*call.context, value);
  call.context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  SIM_CALL(kContext | kUnsafe);
  return synchronise(call, *call.context);
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  SIM_CALL(kDriver | kUnsafe);
  Context* context = handle ? context_of(handle) : call.context;
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  return synchronise(call, *context);
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  SIM_CALL(kContext);
  Context* peer = context_of(handle);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!peer || peer == call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == call.context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  auto& peers = call.context->peers;
  if (std::find(peers.begin(), peers.end(), peer) != peers.end()) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  peers.push_back(peer);
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  SIM_CALL(kContext);
  Context* peer = context_of(handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  return std::erase(call.context->peers, peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // extern "C"
