#include "sim/variant.h"

#include "sim/identity.h"

namespace berth::sim {

// Weak: another driver brings its own.
[[gnu::weak]] Variant variant() { return {kCudaVersion, {}}; }

}  // namespace berth::sim
