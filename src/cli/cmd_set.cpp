// berth set: other limits for a job that runs.
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/text.h"

namespace berth::cli {
namespace {

struct SetOptions {
  std::string name, memory, weight, priority, max_share, max_slowdown;
  CLI::Option* memory_option = nullptr;  // an empty quota is one, too: none
  bool json = false;
};

Result<Json> set_request(const SetOptions& options) {
  if (!options.max_slowdown.empty()) return Error{"usage", "--max-slowdown is not available in this version"};
  Json request{{"op", "set"}};
  auto name = check_job_reference(options.name);
  if (!name) return name.error();
  request["name"] = *name;
  if (options.memory_option->count()) {
    auto memory = check_quota(options.memory);
    if (!memory) return Error{"usage", "--memory: " + memory.error().message};
    request["memory"] = *memory;
  }
  if (!options.priority.empty()) {
    auto priority = check_priority(options.priority);
    if (!priority) return priority.error();
    request["priority"] = *priority;
  }
  if (!options.weight.empty()) {
    auto weight = parse_weight(options.weight);
    if (!weight) return weight.error();
    request["weight"] = *weight;
  }
  if (!options.max_share.empty()) {
    auto share = parse_share(options.max_share);
    if (!share) return share.error();
    request["max_share_ratio"] = *share;
  }
  if (request.size() == 2) return Error{"usage", "nothing to set: give -m, -w, -p or --max-share; see berth set --help"};
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
  options->memory_option = command->add_option("-m,--memory", options->memory, "quota; below the present use free becomes 0")
                               ->type_name("SIZE|PCT");
  command->add_option("-p,--priority", options->priority, "high, normal or low; stored and shown")->type_name("PRIORITY");
  command->add_option("-w,--weight", options->weight, "1 to 10000; stored and shown")->type_name("N");
  command->add_option("--max-share", options->max_share, "cap on GPU time; stored and shown")->type_name("PCT");
  command->add_option("--max-slowdown", options->max_slowdown, "not available in this version")->type_name("X");
  command->add_flag("--json", options->json, "show the job as ps does");
  command->callback([options, outcome] { outcome->exit_code = set(*options); });
}

}  // namespace berth::cli
