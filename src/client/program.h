// What COMMAND is, found out before anything is started.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace berth::client {

struct Program {
  std::string path;         // what to execute
  bool is_32_bit = false;   // its library would have to be, too: berth doesn't reach it
  bool is_setuid = false;   // the loader ignores LD_LIBRARY_PATH for it
};

// Looks `command` up as a shell does, and the interpreter or loader that its file names. Errors: `not_found` (exit code
// 127), `not_executable` (126).
Result<Program> find_program(const std::string& command);

// True if `argv` has docker, podman or the like start a container: its processes won't be below this one, so limits don't
// reach them.
bool starts_container(const std::vector<std::string>& argv);

}  // namespace berth::client
