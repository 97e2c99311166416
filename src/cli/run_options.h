// The options of `berth run`, and their way into a request.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "client/job.h"

namespace berth::cli {

// As typed. Empty: not given.
struct RunOptions {
  std::string memory, priority = "normal", weight = "100", max_share, device, name, wait = "0";
  bool strict = false, isolate = false;
  std::string gpus, sharing, max_slowdown;  // of later work: refused
  bool swap = false;
};

void add_run_options(CLI::App* run, RunOptions* options);

// Those that are no matter of how a program is started: memory, device, wait, strict, priority, weight, share.
void add_quota_options(CLI::App* command, RunOptions* options);
void add_time_options(CLI::App* command, RunOptions* options);

// Checks all options. Error `usage` with one clear line for the first that is wrong.
Result<client::JobRequest> job_request(const RunOptions& options, const std::vector<std::string>& command);

// What the daemon says while a job waits for room, as a message.
std::string queue_text(const client::Json& event, const std::string& memory);

}  // namespace berth::cli
