#include <exception>

#include "cli/command_line.h"
#include "cli/output.h"

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  bool run = !arguments.empty() && arguments[0] == "run";
  try {
    return berth::cli::run_command_line(arguments);
  } catch (const std::exception& fault) {  // out of memory, a reply with a field of another kind
    berth::cli::say(std::string("unexpected: ") + fault.what());
    return run ? berth::cli::kExitBerth : berth::cli::kExitRefused;
  }
}
