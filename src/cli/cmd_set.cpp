// berth set: other limits for a job that runs.
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/run_options.h"
#include "cli/text.h"

namespace berth::cli {
namespace {

struct SetOptions {
  std::string name;
  std::optional<std::string> memory, weight, priority, max_share, max_slowdown;
  bool json = false;
};

Result<Json> set_request(const SetOptions& options) {
  Json request{{"op", "set"}};
  auto name = check_job_reference(options.name);
  if (!name) return name.error();
  request["name"] = *name;
  if (options.memory) {  // an empty one, too: no quota
    auto memory = check_quota(*options.memory);
    if (!memory) return Error{"usage", "--memory: " + memory.error().message};
    request["memory"] = *memory;
  }
  if (options.priority) {
    auto priority = check_priority(*options.priority);
    if (!priority) return priority.error();
    request["priority"] = *priority;
  }
  if (options.weight) {
    auto weight = parse_weight(*options.weight);
    if (!weight) return weight.error();
    request["weight"] = *weight;
  }
  if (options.max_share) {
    auto share = parse_share(*options.max_share);
    if (!share) return share.error();
    request["max_share_ratio"] = *share;
  }
  if (options.max_slowdown) {
    auto slowdown = parse_slowdown(*options.max_slowdown);
    if (!slowdown) return slowdown.error();
    request["max_slowdown_ratio"] = *slowdown;
  }
  if (request.size() == 2)
    return Error{"usage", "nothing to set: give -m, -w, -p, --max-share or --max-slowdown; see berth set --help"};
  return request;
}

int set(const SetOptions& options) {
  auto request = set_request(options);
  if (!request) return fail(request.error(), options.json);
  auto reply = ask_daemon(*request);
  if (!reply) return fail(reply.error(), options.json);
  if (options.json) print_json(*reply);
  return kExitOk;
}

}  // namespace

void add_set(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("set", "change the limits of a job that runs");
  auto options = std::make_shared<SetOptions>();
  command->add_option("NAME", options->name, "the job; as root USER/NAME")->required();
  add_text(command, "-m,--memory", &options->memory,
           "quota, as for berth run (0, 0% or '': none); below the present use free becomes 0")
      ->type_name("SIZE|PCT");
  add_text(command, "-p,--priority", &options->priority, "high, normal or low")->type_name("PRIORITY");
  add_text(command, "-w,--weight", &options->weight, "1 to 10000")->type_name("N");
  add_text(command, "--max-share", &options->max_share, "cap on GPU time; 100%: none")->type_name("PCT");
  add_text(command, "--max-slowdown", &options->max_slowdown, "as for berth run: 1 to 100")->type_name("X");
  command->add_flag("--json", options->json, "show the job as ps does");
  command->callback([options, outcome] { outcome->exit_code = set(*options); });
}

}  // namespace berth::cli
