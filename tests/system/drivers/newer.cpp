// A driver of some later version, with a third cuMemAlloc and a function that nobody knows yet.
#include "abi/driver_api.h"
#include "sim/variant.h"

namespace berth::sim {
namespace {
constexpr NewerName kNewer[] = {{"cuMemAlloc", 14000, "cuMemAlloc_v3"}, {"cuFutureThing", 14000, "cuFutureThing"}};
}  // namespace

Variant variant() { return {14000, kNewer}; }

}  // namespace berth::sim

extern "C" {
CUresult cuMemAlloc_v3(CUdeviceptr* pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes); }
CUresult cuFutureThing() { return CUDA_SUCCESS; }
}
