// The options of `berth run`, and their way into a request.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/job.h"

namespace berth::cli {

// As typed.
struct RunOptions {
  std::string priority = "normal", weight = "100", wait = "0";
  std::optional<std::string> memory, gpus, max_share, max_slowdown, device, name;
  bool strict = false, isolate = false;
  std::optional<std::string> sharing;  // of later work: refused
  bool swap = false;
};

// An option that may be given an empty value, which is not the same as not being given.
CLI::Option* add_text(CLI::App* command, const std::string& name, std::optional<std::string>* text,
                      const std::string& description);

void add_run_options(CLI::App* run, RunOptions* options);

// Those that are no matter of how a program is started: memory, device, wait, strict, priority, weight, share.
void add_quota_options(CLI::App* command, RunOptions* options);
void add_time_options(CLI::App* command, RunOptions* options);

// Checks all options. Error `usage` with one clear line for the first that is wrong.
Result<client::JobRequest> job_request(const RunOptions& options, const std::vector<std::string>& command);

// What the daemon says while a job waits for room, as a message.
std::string queue_text(const client::Json& event);

}  // namespace berth::cli
