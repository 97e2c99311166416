// Primary contexts of virtual devices, and access between them.
//
// The virtual device that owns its card has the card's primary context, whatever the driver does with it. Each other one has a
// context of its own, made by the first retain and counted here as the driver counts (CUDA Driver API, Primary Context
// Management). Beside a runtime all share the card's.
#include "shim/virtual_devices.h"

namespace berth::shim::virtual_device {
namespace {

// The virtual device if it has a context of its own; null: the card's is meant, or the number is none.
VirtualDevice* with_own_context(CUdevice device, bool claims = false) {
  VirtualDevices& all = *virtual_devices;
  VirtualDevices::Seen seen = all.see(device);
  if (!seen.valid || seen.plain) return nullptr;
  VirtualDevice* own = &all.devices[seen.ordinal];
  if (all.shares_contexts()) return __atomic_load_n(&own->primary, __ATOMIC_ACQUIRE) ? own : nullptr;
  if (claims ? all.claims_card(seen.ordinal) : all.owns_card(seen.ordinal) || !all.has_owner(own->card)) return nullptr;
  return own;
}

// The context that dies with its last reference, or with a reset.
CUcontext take(VirtualDevice& own, bool whole, CUresult* result) {
  Locked locked(virtual_devices->lock);
  CUcontext context = own.primary;
  *result = CUDA_SUCCESS;
  if (!context) {
    if (!whole) *result = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  own.references = whole ? 0 : own.references - 1;
  if (own.references) return nullptr;
  __atomic_store_n(&own.primary, nullptr, __ATOMIC_RELEASE);
  return context;
}

CUresult release(VirtualDevice& own, bool whole) {
  CUresult result;
  CUcontext context = take(own, whole, &result);
  return context ? raw::cuCtxDestroy_v2(context) : result;
}

bool is_own_primary(CUcontext context) {
  for (uint32_t i = 0; context && i < virtual_devices->count; ++i)
    if (__atomic_load_n(&virtual_devices->devices[i].primary, __ATOMIC_ACQUIRE) == context) return true;
  return false;
}

// Pairs of contexts on one card between which the program has enabled access: the driver has nothing to do there.
struct Access {
  CUcontext from, to;
};
constexpr int kMostPairs = 1024;
Access* pairs = nullptr;  // under VirtualDevices::lock

Access* find(CUcontext from, CUcontext to) {
  for (int i = 0; pairs && i < kMostPairs; ++i)
    if (pairs[i].from == from && pairs[i].to == to) return &pairs[i];
  return nullptr;
}

// The current context, if it and `peer` are those of two virtual devices on one card.
bool on_one_card(CUcontext peer, CUcontext* current) {
  VirtualDevices& all = *virtual_devices;
  uint32_t from, to;
  return peer && real::cuCtxGetCurrent(current) == CUDA_SUCCESS && *current && *current != peer && all.of_context(*current, &from) &&
         all.of_context(peer, &to) && from != to && all.devices[from].card == all.devices[to].card;
}

void forget_pairs(CUcontext context) {
  Locked locked(virtual_devices->lock);
  for (int i = 0; pairs && i < kMostPairs; ++i)
    if (pairs[i].from == context || pairs[i].to == context) pairs[i] = {};
}

CUresult destroy(CUresult (*raw)(CUcontext), CUcontext context) {
  if (is_own_primary(context)) return CUDA_ERROR_INVALID_CONTEXT;  // as the driver answers for a primary context
  forget_pairs(context);
  return raw(context);
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(decltype(&::cuDevicePrimaryCtxRetain) raw, CUcontext* context, CUdevice device) {
  VirtualDevice* own = context ? with_own_context(device, true) : nullptr;
  if (!own) return raw(context, on_card(device));
  CUcontext fresh = nullptr;
  for (;;) {
    {
      Locked locked(virtual_devices->lock);
      if (!own->primary && fresh) {
        __atomic_store_n(&own->primary, fresh, __ATOMIC_RELEASE);
        fresh = nullptr;
      }
      if (own->primary) {
        ++own->references;
        *context = own->primary;
        break;
      }
    }
    CUcontext popped;
    if (CUresult result = raw::cuCtxCreate_v2(&fresh, own->flags, own->card); result != CUDA_SUCCESS) return result;
    real::cuCtxPopCurrent_v2(&popped);
  }
  if (fresh) raw::cuCtxDestroy_v2(fresh);  // another thread was first
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(decltype(&::cuDevicePrimaryCtxRelease) raw, CUdevice device) {
  VirtualDevice* own = with_own_context(device);
  return own ? release(*own, false) : raw(on_card(device));
}
CUresult cuDevicePrimaryCtxRelease_v2(decltype(&::cuDevicePrimaryCtxRelease_v2) raw, CUdevice device) {
  return virtual_device::cuDevicePrimaryCtxRelease(raw, device);
}
CUresult cuDevicePrimaryCtxReset(decltype(&::cuDevicePrimaryCtxReset) raw, CUdevice device) {
  VirtualDevice* own = with_own_context(device);
  if (!own) return raw(on_card(device));
  own->flags = 0;
  return release(*own, true);
}
CUresult cuDevicePrimaryCtxReset_v2(decltype(&::cuDevicePrimaryCtxReset_v2) raw, CUdevice device) {
  return virtual_device::cuDevicePrimaryCtxReset(raw, device);
}

CUresult cuDevicePrimaryCtxGetState(decltype(&::cuDevicePrimaryCtxGetState) raw, CUdevice device, unsigned* flags, int* active) {
  VirtualDevice* own = flags && active ? with_own_context(device) : nullptr;
  if (!own) return raw(on_card(device), flags, active);
  *flags = own->flags;
  *active = __atomic_load_n(&own->primary, __ATOMIC_ACQUIRE) != nullptr;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(decltype(&::cuDevicePrimaryCtxSetFlags) raw, CUdevice device, unsigned flags) {
  VirtualDevice* own = with_own_context(device);
  if (!own) return raw(on_card(device), flags);
  if (raw == &raw::cuDevicePrimaryCtxSetFlags && __atomic_load_n(&own->primary, __ATOMIC_ACQUIRE))
    return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  own->flags = flags;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(decltype(&::cuDevicePrimaryCtxSetFlags_v2) raw, CUdevice device, unsigned flags) {
  return virtual_device::cuDevicePrimaryCtxSetFlags(raw, device, flags);
}

CUresult cuCtxDestroy(decltype(&::cuCtxDestroy) raw, CUcontext context) { return destroy(raw, context); }
CUresult cuCtxDestroy_v2(decltype(&::cuCtxDestroy_v2) raw, CUcontext context) { return destroy(raw, context); }

CUresult cuCtxEnablePeerAccess(decltype(&::cuCtxEnablePeerAccess) raw, CUcontext peer, unsigned flags) {
  CUcontext current;
  if (flags || !on_one_card(peer, &current)) return raw(peer, flags);
  Locked locked(virtual_devices->lock);
  if (!pairs) pairs = static_cast<Access*>(map_pages(kMostPairs * sizeof(Access)));
  if (find(current, peer)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  Access* free = find(nullptr, nullptr);
  if (!free) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  *free = {current, peer};
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(decltype(&::cuCtxDisablePeerAccess) raw, CUcontext peer) {
  CUcontext current;
  if (!on_one_card(peer, &current)) return raw(peer);
  Locked locked(virtual_devices->lock);
  Access* enabled = find(current, peer);
  if (!enabled) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  *enabled = {};
  return CUDA_SUCCESS;
}

}  // namespace berth::shim::virtual_device
