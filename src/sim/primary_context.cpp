// The primary context of each device: counted, shared by all libraries of the process, one handle for ever.
#include "sim/call.h"
#include "sim/context.h"

using namespace berth::sim;

namespace {

CUresult release(Call& call, CUdevice ordinal) {
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = *device->primary;
  if (!primary.uses) return CUDA_ERROR_INVALID_CONTEXT;
  // Recorded: a reset leaves the count, so the last release may find the context gone.
  if (--primary.uses == 0 && primary.alive) close_context(call.lock, primary);
  return CUDA_SUCCESS;
}

CUresult reset(Call& call, CUdevice ordinal) {
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = *device->primary;
  if (primary.alive) close_context(call.lock, primary);
  device->primary_flags = 0;
  return CUDA_SUCCESS;
}

CUresult set_flags(CUdevice ordinal, unsigned flags) {
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (flags & ~0xffu) return CUDA_ERROR_INVALID_VALUE;
  device->primary_flags = flags;
  if (device->primary->alive) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  SIM_CALL(kDriver);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = *device->primary;
  process().done.wait(call.lock, [&] { return !primary.closing; });
  if (!primary.alive)
    if (CUresult bad = open_context(primary, device->primary_flags, 3020)) return bad;
  ++primary.uses;
  *context = reinterpret_cast<CUcontext>(&primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  SIM_CALL(kDriver);
  return release(call, device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIM_CALL(kDriver);
  return release(call, device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  SIM_CALL(kDriver);
  return reset(call, device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIM_CALL(kDriver);
  return reset(call, device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  SIM_CALL(kDriver);
  return set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  SIM_CALL(kDriver);
  return set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  SIM_CALL(kDriver);
  const Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->primary_flags;
  *active = device->primary->alive;
  return CUDA_SUCCESS;
}

}  // extern "C"
