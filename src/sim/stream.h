// Streams as handles.
#pragma once
#include "sim/process.h"

namespace berth::sim {

inline constexpr int kGreatestPriority = -5;

// The calling thread's default stream in the context, made at its first use.
Stream* per_thread_stream(Context& context);

}  // namespace berth::sim
