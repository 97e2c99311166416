#include "daemon/clock.h"

#include <cmath>
#include <cstdio>
#include <ctime>

namespace berth::daemon {

policy::Time steady_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::string wall_now() { return wall_before(0); }

std::string wall_before(double seconds) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  double past = std::isfinite(seconds) && seconds > 0 ? std::fmin(seconds, static_cast<double>(now.tv_sec)) : 0;
  long long milliseconds =
      static_cast<long long>(now.tv_sec) * 1000 + now.tv_nsec / 1000000 - std::llround(past * 1000);
  time_t whole = static_cast<time_t>(milliseconds / 1000);
  tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(milliseconds % 1000));
  return text;
}

}  // namespace berth::daemon
