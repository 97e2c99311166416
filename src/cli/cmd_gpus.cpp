// berth gpus: the devices and what is promised of them.
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/views.h"

namespace berth::cli {
namespace {

// Only the daemon knows the devices, so one is started if need be. If there are none it also knows why.
Result<Json> read_gpus() {
  auto gpus = ask_daemon({{"op", "gpus"}}, NoDaemon::start_one);
  if (!gpus || !gpus->value("devices", Json::array()).empty()) return gpus;
  auto status = ask_daemon({{"op", "status"}});
  if (!status) return status;
  Json reason = status->value("no_device", Json());
  return Error{"no_device", reason.is_string() ? reason.get<std::string>() : "there is no GPU here"};
}

}  // namespace

void add_gpus(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("gpus", "show the devices and what is promised of them");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "for programs; see docs/json.md");
  command->callback([json, outcome] {
    outcome->exit_code = show(read_gpus(), *json, [](const Json& gpus) { return gpus_view(gpus, look_of_stdout()); });
  });
}

}  // namespace berth::cli
