// The daemon's two clocks: a steady one for decisions, and the wall's for people.
#pragma once
#include <string>

#include "policy/state.h"

namespace berth::daemon {

policy::Time steady_now();

// RFC 3339 in UTC with milliseconds: "2026-11-30T18:33:00.123Z". The texts sort as the times do.
std::string wall_now();
std::string wall_before(double seconds);

}  // namespace berth::daemon
