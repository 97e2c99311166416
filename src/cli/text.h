// What people type, read; plain functions. Errors have the code `usage`.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace berth::cli {

// "50%" or "50": above 0, at most 100; as a ratio.
Result<double> parse_share(std::string_view text);

// "1.1": from 1 to 100.
Result<double> parse_slowdown(std::string_view text);

// "10m", "2h", "1d", "90" (seconds), or a time as RFC 3339 writes it: seconds before `now` (seconds since 1970).
Result<double> parse_since(std::string_view text, double now);

// Seconds from one look to the next: "2", "0.5"; from 0.1 to a day. `example` shows how to give one.
Result<double> parse_interval(std::string_view text, std::string_view example);

// Seconds since 1970 of "2026-11-30T12:00:00Z", "...12:00:00.5+01:00".
std::optional<double> parse_rfc3339(std::string_view text);

// A quota or "": checked, then passed on as it is written (a percentage is of the device, which the daemon knows).
Result<std::string> check_quota(std::string_view text);

// An index as nvidia-smi counts, or a UUID "GPU-..." (or its beginning).
Result<std::string> check_device(std::string_view text);

// 1 to 64 letters, digits, and . _ - (not first).
Result<std::string> check_job_name(std::string_view text);

// As above, or USER/NAME, for commands that look a job up.
Result<std::string> check_job_reference(std::string_view text);

Result<std::string> check_priority(std::string_view text);
// A number of virtual devices: 1 to 32.
Result<int> parse_gpus(std::string_view text);

Result<int> parse_weight(std::string_view text);

// Whole seconds, or -1 for "" (for ever).
Result<long> parse_wait(std::string_view text);

}  // namespace berth::cli
