// Access between virtual devices through the runtime, and what a reset takes away.
//
// Two on one card reach each other like two halves of it, and access between them is a bit of ours. Between cards the runtime has
// one switch for all pairs on them, so it is asked for the first and for the last.
#include "abi/generated/runtime_bodies.h"
#include "shim/runtime_alias.h"

namespace berth::shim::alias {
namespace {

static_assert(wire::kMaxDevices <= 32);
constinit uint32_t enabled[wire::kMaxDevices] = {};  // by device, its peers as bits

bool is_enabled(int from, int to) { return __atomic_load_n(&enabled[from], __ATOMIC_ACQUIRE) >> to & 1; }
void enable(int from, int to) { __atomic_fetch_or(&enabled[from], 1u << to, __ATOMIC_ACQ_REL); }
void disable(int from, int to) { __atomic_fetch_and(&enabled[from], ~(1u << to), __ATOMIC_ACQ_REL); }

bool on_one_card(int a, int b) { return known(a) && known(b) && a != b && view->card_of(a) == view->card_of(b); }

// Whether another pair on the same two cards needs the runtime's switch.
bool others_need(int from, int to) {
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if ((a != from || b != to) && is_enabled(a, b) && view->card_of(a) == view->card_of(from) && view->card_of(b) == view->card_of(to))
        return true;
  return false;
}

// After a reset of the card: the runtime has forgotten all its switches from and to it.
void forget_card(int card) {
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b)
      if (view->card_of(a) == card || view->card_of(b) == card) disable(a, b);
}

// After a reset of one device beside others, which is current.
void forget_device(int device) {
  auto switch_off = find<decltype(&::cudaDeviceDisablePeerAccess)>(Row::cudaDeviceDisablePeerAccess);
  for (int b = 0; b < count; ++b) {
    if (is_enabled(device, b) && switch_off && !on_one_card(device, b) && !others_need(device, b)) switch_off(on_card(b));
    disable(device, b);
    if (on_one_card(device, b)) disable(b, device);
  }
}

cudaError_t reset(cudaError_t (*real)()) {
  int device = thread_device();
  if (view->reset(device)) {
    forget_device(device);
    return cudaSuccess;
  }
  cudaError_t result = real();
  if (result == cudaSuccess) forget_card(view->card_of(device));
  return result;
}

}  // namespace

cudaError_t cudaDeviceReset(decltype(&::cudaDeviceReset) real) { return reset(real); }
cudaError_t cudaThreadExit(decltype(&::cudaThreadExit) real) { return reset(real); }

cudaError_t cudaDeviceCanAccessPeer(decltype(&::cudaDeviceCanAccessPeer) real, int* can, RuntimeDevice device, RuntimeDevice peer) {
  if (!can || !on_one_card(device, peer)) return real(can, on_card(device), on_card(peer));
  *can = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(decltype(&::cudaDeviceGetP2PAttribute) real, int* value, cudaDeviceP2PAttr attribute,
                                      RuntimeDevice device, RuntimeDevice peer) {
  if (!value || attribute < abi::kP2PPerformanceRank || attribute > abi::kP2POnlyPartialNativeAtomic || !on_one_card(device, peer))
    return real(value, attribute, on_card(device), on_card(peer));
  // Access, native atomics and arrays; the best rank.
  *value = attribute != abi::kP2PPerformanceRank && attribute != abi::kP2POnlyPartialNativeAtomic;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAtomicCapabilities(decltype(&::cudaDeviceGetP2PAtomicCapabilities) real, unsigned* capabilities,
                                               const cudaAtomicOperation* operations, unsigned number, RuntimeDevice device,
                                               RuntimeDevice peer) {
  auto within = find<decltype(&::cudaDeviceGetHostAtomicCapabilities)>(Row::cudaDeviceGetHostAtomicCapabilities);
  if (!within || !on_one_card(device, peer)) return real(capabilities, operations, number, on_card(device), on_card(peer));
  return within(capabilities, operations, number, on_card(device));
}

cudaError_t cudaDeviceEnablePeerAccess(decltype(&::cudaDeviceEnablePeerAccess) real, RuntimeDevice peer, unsigned flags) {
  int device = thread_device();
  if (!known(peer) || peer == device || flags) return real(on_card(peer), flags);
  if (on_one_card(device, peer)) {
    if (is_enabled(device, peer)) return cudaErrorPeerAccessAlreadyEnabled;
  } else if (is_enabled(device, peer) || !others_need(device, peer)) {
    if (cudaError_t result = real(on_card(peer), flags); result != cudaSuccess) return result;
  }
  enable(device, peer);
  return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(decltype(&::cudaDeviceDisablePeerAccess) real, RuntimeDevice peer) {
  int device = thread_device();
  if (!known(peer) || peer == device) return real(on_card(peer));
  bool ours = on_one_card(device, peer) || others_need(device, peer);
  if (!ours)
    if (cudaError_t result = real(on_card(peer)); result != cudaSuccess) return result;
  if (!is_enabled(device, peer)) return ours ? cudaErrorPeerAccessNotEnabled : cudaSuccess;
  disable(device, peer);
  return cudaSuccess;
}

}  // namespace berth::shim::alias
