#include "cli/run_options.h"

#include <memory>

#include "cli/help.h"
#include "cli/text.h"

namespace berth::cli {
namespace {

Error later(const std::string& option) { return {"usage", option + " is not available in this version"}; }

}  // namespace

CLI::Option* add_text(CLI::App* command, const std::string& name, std::optional<std::string>* text,
                      const std::string& description) {
  return command->add_option_function<std::string>(name, [text](const std::string& given) { *text = given; }, description);
}

void add_quota_options(CLI::App* command, RunOptions* options) {
  add_text(command, "-m,--memory", &options->memory,
           "quota: bytes, or K M G T such as 8G, or a percentage of the device; without it, "
           "and with 0, 0% or '', there is none")
      ->type_name("SIZE|PCT");
  add_text(command, "-g,--gpus", &options->gpus,
           "virtual devices that the program sees, each with the quota of -m, or without one with an equal part of the "
           "device: 1 to 32")
      ->type_name("N");
  add_text(command, "--device", &options->device, "device, as nvidia-smi counts (the daemon chooses)")->type_name("I|UUID");
  // "--wait[=SECONDS]": a flag, which takes a value only behind a '=', so it never swallows COMMAND.
  command->add_flag("--wait{for ever}", options->wait, "wait for room, no longer than SECONDS if given")->type_name("SECONDS");
  command->add_flag("--strict", options->strict, "end the job if one of its processes uses the GPU without berth");
}

void add_time_options(CLI::App* command, RunOptions* options) {
  command->add_option("-p,--priority", options->priority,
                      "high, normal or low: work of higher priority comes first")
      ->type_name("PRIORITY");
  command->add_option("-w,--weight", options->weight, "part of the GPU's time among jobs of one priority: 1 to 10000, default 100")->type_name("N");
  add_text(command, "--max-share", &options->max_share, "cap on GPU time, strict also when the job is alone")->type_name("PCT");
  add_text(command, "--max-slowdown", &options->max_slowdown,
           "how much slower its slowest requests may get because lower work keeps it company (1.1; 1: not at all)")
      ->type_name("X");
}

void add_run_options(CLI::App* run, RunOptions* options) {
  run->formatter(std::make_shared<Help>("Usage: berth run [OPTIONS] [--] COMMAND...\nOptions end at COMMAND.\n"));
  add_text(run, "-n,--name", &options->name, "name of the job (COMMAND-1, COMMAND-2 ...)")->type_name("NAME");
  add_quota_options(run, options);
  run->add_flag("--isolate", options->isolate,
                "put berth's library over the driver's files in a mount namespace: for programs that ignore LD_LIBRARY_PATH");
  add_time_options(run, options);
  add_text(run, "--sharing", &options->sharing, "timeslice or mps; not available in this version")->type_name("HOW");
  run->add_flag("--swap", options->swap, "not available in this version");
  run->footer("Exit code: the program's own; 128+N if signal N ended it; 75 no room now;\n"
              "125 berth failed or wrong usage; 126 COMMAND can't be executed; 127 not found.");
}

std::string queue_text(const client::Json& event) {
  auto position = event.value("position", client::Json()), holder = event.value("waiting_for", client::Json());
  std::string text = "waiting for room";
  if (position.is_number_integer()) text += ", place " + position.dump() + " in the queue";
  if (holder.is_string() && !holder.get_ref<const std::string&>().empty()) text += ": " + holder.get<std::string>();
  return text;
}

Result<client::JobRequest> job_request(const RunOptions& options, const std::vector<std::string>& command) {
  if (options.swap) return later("--swap");
  if (options.sharing) return later("--sharing");
  if (command.empty()) return Error{"usage", "the command to run is missing; see berth run --help"};

  client::JobRequest request;
  request.command = command;
  request.strict = options.strict;
  auto memory = check_quota(options.memory.value_or(""));
  if (!memory) return Error{"usage", "--memory: " + memory.error().message};
  if (!memory->empty()) request.memory = *memory;
  if (options.gpus) {
    auto gpus = parse_gpus(*options.gpus);
    if (!gpus) return gpus.error();
    request.gpus = *gpus;
  }
  auto priority = check_priority(options.priority);
  if (!priority) return priority.error();
  request.priority = *priority;
  auto weight = parse_weight(options.weight);
  if (!weight) return weight.error();
  request.weight = *weight;
  if (options.max_share) {
    auto share = parse_share(*options.max_share);
    if (!share) return share.error();
    request.max_share_ratio = *share;
  }
  if (options.max_slowdown) {
    auto slowdown = parse_slowdown(*options.max_slowdown);
    if (!slowdown) return slowdown.error();
    request.max_slowdown_ratio = *slowdown;
  }
  if (options.device) {
    auto device = check_device(*options.device);
    if (!device) return device.error();
    request.device = *device;
  }
  if (options.name) {
    auto name = check_job_name(*options.name);
    if (!name) return name.error();
    request.name = *name;
  }
  auto wait = parse_wait(options.wait == "for ever" ? "" : options.wait);
  if (!wait) return wait.error();
  request.wait_seconds = *wait;
  return request;
}

}  // namespace berth::cli
