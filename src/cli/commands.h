// All commands: each adds its options to the command line and, when it is the chosen one, runs and sets its exit code.
// One file a command: cmd_NAME.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace berth::cli {

struct Outcome {
  int exit_code = 0;
};

// `command` is COMMAND with its arguments, which the command line's own parser never sees.
void add_run(CLI::App& app, const std::vector<std::string>& command, Outcome* outcome);
void add_ps(CLI::App& app, Outcome* outcome);
void add_top(CLI::App& app, Outcome* outcome);
void add_gpus(CLI::App& app, Outcome* outcome);
void add_set(CLI::App& app, Outcome* outcome);
void add_pause(CLI::App& app, Outcome* outcome);  // and resume
void add_kill(CLI::App& app, Outcome* outcome);
void add_container(CLI::App& app, Outcome* outcome);
void add_events(CLI::App& app, Outcome* outcome);
void add_daemon(CLI::App& app, Outcome* outcome);
void add_doctor(CLI::App& app, Outcome* outcome);
void add_completion(CLI::App& app, Outcome* outcome);

}  // namespace berth::cli
