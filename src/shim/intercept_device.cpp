// What a device is said to be: all as the driver says, but for the compute mode.
#include "abi/generated/driver_intercepts.h"
#include "shim/compute_mode.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {

CUresult cuDeviceGetAttribute(QueryCall& call, decltype(&::cuDeviceGetAttribute) real, int* value, CUdevice_attribute attribute,
                              CUdevice device) {
  CUresult result = real(value, attribute, device);
  if (result != CUDA_SUCCESS || attribute != abi::kDeviceAttrComputeMode || device < 0) return result;
  if (const wire::PageDevice* numbers = call.client().device(account_of(device))) *value = stricter_mode(*value, *numbers);
  return result;
}

}  // namespace berth::shim::intercept
