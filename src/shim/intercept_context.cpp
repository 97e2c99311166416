// Contexts: their cost is known to the daemon (learned from NVML), and with a context all that was allocated in it goes.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"
#include "shim/pools.h"
#include "shim/split_exec.h"
#include "shim/streams.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

// `space` and `key` name the account of the context: its handle, or the device for a primary context before it exists.
template <class Real>
CUresult create(AllocCall& call, CUcontext* context, CUdevice device, Real real, bool primary = false) {
  if (!context || device < 0) return real();
  Allocation made;
  uint32_t ordinal = account_of(device);
  if (CUresult refused = call.reserve_context(ordinal, &made.bytes); refused != CUDA_SUCCESS) return refused;
  CUresult result = call.call_while_leaving(ordinal, made.bytes, real);
  if (result != CUDA_SUCCESS) {
    call.client().release(ordinal, wire::Kind::overhead, made.bytes);
    return result;
  }
  made.space = Space::context;
  made.kind = wire::Kind::overhead;
  made.device = static_cast<uint8_t>(ordinal);
  made.key = reinterpret_cast<uint64_t>(*context);
  made.references = primary ? 0 : 1;
  call.client().table.insert(made);
  call.client().refresh(ordinal);
  return result;
}

// The context is gone: so is what lived in it.
void forget(Client& client, CUcontext context, uint32_t device) {
  Allocation gone;
  uint64_t key = reinterpret_cast<uint64_t>(context);
  auto of_context = [&](const Allocation& a) { return a.context == context || (a.space == Space::context && a.key == key); };
  while (context && client.table.remove_if(of_context, &gone)) client.release(gone);
  if (context) forget_splits(client, context);
  if (Streams* streams = client.streams.load(std::memory_order_acquire); streams && context) streams->forget_context(context);
  settle_all_pools(client);
  settle_all_graph_memory(client);
  client.refresh(device);
}

uint32_t device_of(Client& client, CUcontext context) {
  Allocation known;
  return client.table.find(Space::context, reinterpret_cast<uint64_t>(context), &known) ? known.device : 0;
}

bool primary_is_active(CUdevice device) {
  unsigned flags;
  int active = 0;
  return real::cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

// The handle of a primary context can only be had by retaining it, which changes its count: remembered from our own retains.
CUcontext primary_of(Client& client, CUdevice device) {
  Allocation known;
  return client.table.find(Space::primary, static_cast<uint64_t>(device), &known) ? reinterpret_cast<CUcontext>(known.link) : nullptr;
}

template <class Real>
CUresult release_primary(FreeCall& call, CUdevice device, Real real) {
  CUresult result = real();
  if (result == CUDA_SUCCESS && !primary_is_active(device))
    forget(call.client(), primary_of(call.client(), device), account_of(device));
  return result;
}

}  // namespace

CUresult cuCtxCreate(AllocCall& call, decltype(&::cuCtxCreate) real, CUcontext* context, unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, flags, device); });
}
CUresult cuCtxCreate_v2(AllocCall& call, decltype(&::cuCtxCreate_v2) real, CUcontext* context, unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, flags, device); });
}
CUresult cuCtxCreate_v3(AllocCall& call, decltype(&::cuCtxCreate_v3) real, CUcontext* context, CUexecAffinityParam* params,
                        int count, unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, params, count, flags, device); });
}
CUresult cuCtxCreate_v4(AllocCall& call, decltype(&::cuCtxCreate_v4) real, CUcontext* context, CUctxCreateParams* params,
                        unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, params, flags, device); });
}
CUresult cuGLCtxCreate(AllocCall& call, decltype(&::cuGLCtxCreate) real, CUcontext* context, unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, flags, device); });
}
CUresult cuGLCtxCreate_v2(AllocCall& call, decltype(&::cuGLCtxCreate_v2) real, CUcontext* context, unsigned flags, CUdevice device) {
  return create(call, context, device, [&] { return real(context, flags, device); });
}
CUresult cuVDPAUCtxCreate(AllocCall& call, decltype(&::cuVDPAUCtxCreate) real, CUcontext* context, unsigned flags,
                          CUdevice device, VdpDevice vdpau, VdpGetProcAddress* lookup) {
  return create(call, context, device, [&] { return real(context, flags, device, vdpau, lookup); });
}
CUresult cuVDPAUCtxCreate_v2(AllocCall& call, decltype(&::cuVDPAUCtxCreate_v2) real, CUcontext* context, unsigned flags,
                             CUdevice device, VdpDevice vdpau, VdpGetProcAddress* lookup) {
  return create(call, context, device, [&] { return real(context, flags, device, vdpau, lookup); });
}

CUresult cuDevicePrimaryCtxRetain(AllocCall& call, decltype(&::cuDevicePrimaryCtxRetain) real, CUcontext* context, CUdevice device) {
  CUresult result = primary_is_active(device) ? real(context, device)
                                              : create(call, context, device, [&] { return real(context, device); }, true);
  if (result == CUDA_SUCCESS) {
    Allocation primary;
    primary.space = Space::primary;
    primary.key = static_cast<uint64_t>(device);
    primary.link = reinterpret_cast<uint64_t>(*context);
    call.client().table.insert(primary);
  }
  return result;
}

CUresult cuGreenCtxCreate(AllocCall& call, decltype(&::cuGreenCtxCreate) real, CUgreenCtx* context, CUdevResourceDesc resources,
                          CUdevice device, unsigned flags) {
  CUresult result = real(context, resources, device, flags);  // a part of the primary context; NVML tells what it adds
  if (result == CUDA_SUCCESS && device >= 0) call.client().refresh(account_of(device));
  return result;
}
CUresult cuGreenCtxDestroy(FreeCall& call, decltype(&::cuGreenCtxDestroy) real, CUgreenCtx context) {
  CUresult result = real(context);
  uint32_t device;
  if (result == CUDA_SUCCESS && current_device(&device)) call.client().refresh(device);
  return result;
}

CUresult cuCtxDestroy(FreeCall& call, decltype(&::cuCtxDestroy) real, CUcontext context) {
  uint32_t device = device_of(call.client(), context);
  CUresult result = real(context);
  if (result == CUDA_SUCCESS) forget(call.client(), context, device);
  return result;
}
CUresult cuCtxDestroy_v2(FreeCall& call, decltype(&::cuCtxDestroy_v2) real, CUcontext context) {
  uint32_t device = device_of(call.client(), context);
  CUresult result = real(context);
  if (result == CUDA_SUCCESS) forget(call.client(), context, device);
  return result;
}
CUresult cuCtxDetach(FreeCall& call, decltype(&::cuCtxDetach) real, CUcontext context) {
  uint32_t device = device_of(call.client(), context);
  CUresult result = real(context);
  unsigned version;
  if (result == CUDA_SUCCESS && real::cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS) forget(call.client(), context, device);
  return result;
}

CUresult cuDevicePrimaryCtxRelease(FreeCall& call, decltype(&::cuDevicePrimaryCtxRelease) real, CUdevice device) {
  return release_primary(call, device, [&] { return real(device); });
}
CUresult cuDevicePrimaryCtxRelease_v2(FreeCall& call, decltype(&::cuDevicePrimaryCtxRelease_v2) real, CUdevice device) {
  return release_primary(call, device, [&] { return real(device); });
}
CUresult cuDevicePrimaryCtxReset(FreeCall& call, decltype(&::cuDevicePrimaryCtxReset) real, CUdevice device) {
  return release_primary(call, device, [&] { return real(device); });
}
CUresult cuDevicePrimaryCtxReset_v2(FreeCall& call, decltype(&::cuDevicePrimaryCtxReset_v2) real, CUdevice device) {
  return release_primary(call, device, [&] { return real(device); });
}

CUresult cuCtxSetLimit(AllocCall& call, decltype(&::cuCtxSetLimit) real, CUlimit limit, size_t value) {
  CUcontext context;
  uint32_t device;
  if ((limit != abi::kLimitStackSize && limit != abi::kLimitMallocHeapSize && limit != abi::kLimitPrintfFifoSize) ||
      !current_context(call, &context, &device))
    return real(limit, value);
  // The device keeps a stack for every thread that it can hold (recorded: 16 KiB cost 3.9 GiB on 132 x 2048 threads).
  size_t before = 0;
  int processors = 1, threads = 1;
  real::cuCtxGetLimit(&before, limit);
  if (limit == abi::kLimitStackSize) {
    real::cuDeviceGetAttribute(&processors, abi::kDeviceAttrMultiprocessorCount, static_cast<CUdevice>(device));
    real::cuDeviceGetAttribute(&threads, abi::kDeviceAttrMaxThreadsPerMultiprocessor, static_cast<CUdevice>(device));
  }
  uint64_t grow = value > before ? value - before : 0, bytes;
  if (__builtin_mul_overflow(grow, static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads), &bytes)) bytes = ~0ull;
  uint64_t granted = 0;
  if (bytes && !call.reserve(device, wire::Kind::overhead, page_footprint(bytes), wire::Force::none, &granted))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = real(limit, value);
  if (result != CUDA_SUCCESS) {
    call.client().release(device, wire::Kind::overhead, granted);
    return result;
  }
  call.client().table.update(Space::context, reinterpret_cast<uint64_t>(context), [&](Allocation& a) { a.bytes += granted; });
  call.client().refresh(device);
  return result;
}

}  // namespace berth::shim::intercept
