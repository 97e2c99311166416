// Commands that a later version brings: they say so, whatever follows them.
#include "cli/commands.h"
#include "cli/output.h"

namespace berth::cli {

void add_later_commands(CLI::App& app, Outcome* outcome) {
  for (const char* name : {"top"}) {
    CLI::App* command = app.add_subcommand(name, "not available in this version");
    command->allow_extras();
    command->callback([name, outcome] {
      say(std::string("berth ") + name + " is not available in this version");
      outcome->exit_code = kExitUsage;
    });
  }
}

}  // namespace berth::cli
