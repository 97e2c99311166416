// Device memory of contexts: the ranges that everything else looks addresses up in.
#pragma once
#include "sim/process.h"

namespace berth::sim {

// Enters a range with a new id.
Range& add_range(Range range);
// Gives back what the range stands for, according to its kind, and forgets it. Nothing may use it any more.
void drop_range(uint64_t start);
// At the end of a context.
void drop_memory_of(Context& context);

// cuMemAlloc: small ones from the context's heap, others in whole pages.
CUresult allocate_device(Context& context, uint64_t bytes, uint64_t* address);

}  // namespace berth::sim
