// What berth-load can do. Each mode returns its report: keys as docs/json.md, in the order in which people want to read
// them. A report with "wrong" above 0, or with a "refusal" that was not asked for, is a failure.
#pragma once
#include <atomic>
#include <nlohmann/json.hpp>

#include "options.h"
#include "session.h"

namespace berth::load {

using Report = nlohmann::ordered_json;

// Set by SIGTERM and SIGINT: every mode ends soon after, with its report.
extern std::atomic<bool> stop_requested;

// Told once when a mode's memory is there and its work begins.
using Ready = void (*)(const Options& options, const Report& state);

Report run_alloc(Session& session, const Options& options, Ready ready);
Report run_check(Session& session, const Options& options, Ready ready);
Report run_infer(Session& session, const Options& options, Ready ready);
Report run_train(Session& session, const Options& options, Ready ready);

}  // namespace berth::load
