// What COMMAND is, found out before anything is started.
#pragma once
#include <string>

#include "base/result.h"

namespace berth::client {

struct Program {
  std::string path;         // what to execute
  bool is_32_bit = false;   // its library would have to be, too: berth doesn't reach it
  bool is_setuid = false;   // the loader ignores LD_LIBRARY_PATH for it
};

// Looks `command` up as a shell does. Errors: `not_found` (exit code 127), `not_executable` (126).
Result<Program> find_program(const std::string& command);

// True for docker, podman and nerdctl: what they start isn't below them, so limits don't reach it.
bool is_container_tool(const std::string& command);

}  // namespace berth::client
