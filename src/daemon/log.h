// The daemon's word to whoever runs it: one line each on stderr, nothing while all is well.
#pragma once
#include <cstdio>
#include <string>

namespace berth::daemon {

inline void log_line(const std::string& text) { std::fprintf(stderr, "berthd: %s\n", text.c_str()); }

}  // namespace berth::daemon
