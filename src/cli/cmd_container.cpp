// berth container add: a job for a container, which is known by its cgroup. docs/containers.md has the whole recipe.
#include <memory>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/text.h"
#include "client/daemon.h"

namespace berth::cli {
namespace {

struct ContainerOptions {
  RunOptions limits;
  std::string name, cgroup;
};

Result<std::string> check_cgroup(std::string path) {
  static const std::string kMount = "/sys/fs/cgroup";
  if (path.rfind(kMount + "/", 0) == 0) path.erase(0, kMount.size());
  if (path.size() < 2 || path[0] != '/')
    return Error{"usage", "'" + path + "' is not a cgroup: give its path as /proc/PID/cgroup shows it, such as /berth-svc"};
  return path;
}

Status add(const ContainerOptions& options) {
  auto name = check_job_name(options.name);
  if (!name) return name.error();
  auto cgroup = check_cgroup(options.cgroup);
  if (!cgroup) return cgroup.error();
  auto limits = job_request(options.limits, {"container"});
  if (!limits) return limits.error();
  limits->name = *name;
  Json request = client::admit_request(*limits);
  request["op"] = "register_container";
  request["cgroup"] = *cgroup;

  auto connection = client::connect_or_start_daemon();
  if (!connection) return connection.error();
  bool told = false;
  connection->on_event([&](const Json& event) {
    if (event.value("event", "") == "queued" && !std::exchange(told, true)) say(queue_text(event));
  });
  auto reply = connection->request(request, limits->wait_seconds ? client::kForEver : client::kUsualTimeout);
  if (!reply) return reply.error();
  for (const Json& note : reply->value("notes", Json::array()))
    if (note.is_string()) say(note.get<std::string>());
  if (limits->gpus)
    say("set BERTH_GPUS=" + std::to_string(*limits->gpus) +
        " in the container, and LD_PRELOAD to libberth_cudart.so in the shim folder there: docs/containers.md");
  return Ok{};
}

}  // namespace

void add_container(CLI::App& app, Outcome* outcome) {
  CLI::App* container = app.add_subcommand("container", "register containers, whose processes aren't below berth run");
  container->require_subcommand(1);
  CLI::App* command = container->add_subcommand("add", "a quota, or virtual devices, for the container that will run in a cgroup");
  auto options = std::make_shared<ContainerOptions>();
  command->add_option("NAME", options->name, "name of the job")->required();
  command->add_option("--cgroup", options->cgroup, "its cgroup, or one above it, as /proc/PID/cgroup shows it")
      ->type_name("PATH")->required();
  add_quota_options(command, &options->limits);
  add_time_options(command, &options->limits);
  command->footer("Start the container within a minute. The job ends with its last process.\nThe whole recipe: docs/containers.md.");
  command->callback([options, outcome] {
    auto done = add(*options);
    outcome->exit_code = done ? kExitOk : fail(done.error());
  });
}

}  // namespace berth::cli
