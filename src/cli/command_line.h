// The command line as a whole.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace berth::cli {

// Runs what `arguments` (without the program's name) ask for and gives the exit code.
int run_command_line(const std::vector<std::string>& arguments);

// The options of `berth run` end where COMMAND begins: the index of COMMAND in `arguments` (behind a "--" if there is
// one), or their number. `run` tells which options take a value.
struct RunSplit {
  std::vector<std::string> options;
  std::vector<std::string> command;
};
RunSplit split_run_arguments(const CLI::App& run, const std::vector<std::string>& arguments);

// What CLI11 found wrong, as one line of ours.
std::string usage_message(const CLI::ParseError& error, const std::string& command);

}  // namespace berth::cli
