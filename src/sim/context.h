// Contexts: creation, end, and what they cost.
#pragma once
#include "sim/process.h"

namespace berth::sim {

// At cuInit, for each visible card.
void make_device(int card);
// Brings a context to life, new or again (a primary one keeps its handle). Out of memory leaves it dead.
CUresult open_context(Context& context, unsigned flags, unsigned api_version);
// Drops its work, waits for what runs, frees everything that belongs to it. The lock is free while waiting.
void close_context(Lock& lock, Context& context);
// A synchronisation has succeeded: pools give back what is above their thresholds.
void after_synchronisation(Device& device);

}  // namespace berth::sim
