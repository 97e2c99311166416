// berth gpus: the devices and what is promised of them.
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/views.h"

namespace berth::cli {

void add_gpus(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("gpus", "show the devices and what is promised of them");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "for programs; see docs/json.md");
  command->callback([json, outcome] {
    // Only the daemon knows the devices, so one is started if need be.
    auto reply = ask_daemon({{"op", "gpus"}}, NoDaemon::start_one);
    outcome->exit_code = show(reply, *json, [](const Json& gpus) { return gpus_view(gpus, look_of_stdout()); });
  });
}

}  // namespace berth::cli
