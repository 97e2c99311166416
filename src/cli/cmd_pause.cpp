// berth pause, berth resume: a paused job uses no GPU time; its memory stays.
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/text.h"

namespace berth::cli {
namespace {

struct PauseOptions {
  std::string name;
  bool json = false;
};

int change(const char* operation, const PauseOptions& options) {
  auto name = check_job_reference(options.name);
  if (!name) return fail(name.error(), options.json);
  auto reply = ask_daemon({{"op", operation}, {"name", *name}});
  if (!reply) return fail(reply.error(), options.json);
  if (options.json) print_json(*reply);
  return kExitOk;
}

void add_one(CLI::App& app, const char* operation, const char* description, Outcome* outcome) {
  CLI::App* command = app.add_subcommand(operation, description);
  auto options = std::make_shared<PauseOptions>();
  command->add_option("NAME", options->name, "the job; as root USER/NAME")->required();
  command->add_flag("--json", options->json, "show the job as ps does");
  command->callback([operation, options, outcome] { outcome->exit_code = change(operation, *options); });
}

}  // namespace

void add_pause(CLI::App& app, Outcome* outcome) {
  add_one(app, "pause", "let a job's work on the GPU drain and give it no more; its memory stays", outcome);
  add_one(app, "resume", "let a paused job go on", outcome);
}

}  // namespace berth::cli
