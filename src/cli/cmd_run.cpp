// berth run: one job, from its options to its exit code.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "client/daemon.h"
#include "client/held_child.h"
#include "client/job.h"
#include "client/program.h"
#include "client/supervisor.h"

namespace berth::cli {
namespace {

int fail_run(const Error& error) {
  say(error.message);
  if (error.code == "refused") return kExitNoRoom;
  if (error.code == "not_found") return kExitNotFound;
  if (error.code == "not_executable") return kExitNotExecutable;
  return kExitBerth;
}

void warn_about(const client::Program& program, const std::vector<std::string>& command, bool isolated) {
  if (client::starts_container(command))
    say("warning: limits don't reach a container that " + command[0] + " starts, since it isn't below this process; "
        "docs/containers.md has a way that works");
  else if (program.is_32_bit)
    say("warning: " + program.path + " is a 32-bit program, which berth's library can't be loaded into, so it will not be limited: run a 64-bit build of it");
  else if (program.is_setuid && !isolated)
    say("warning: " + program.path + " is a setuid program, which ignores LD_LIBRARY_PATH: add --isolate to limit it");
}

// "-m 8" is eight bytes, as documented; hardly anybody means that.
void warn_about_few_bytes(const std::string& memory) {
  bool plain = !memory.empty() && memory.size() < 6 && memory.find_first_not_of("0123456789") == std::string::npos;
  if (plain && memory.find_first_not_of('0') != std::string::npos)
    say("warning: -m " + memory + " means " + memory + " bytes; write " + memory + "G for GiB");
}

// The program, held, made known to the daemon, then let go and stayed with.
int start_and_stay(client::Connection connection, pid_t daemon, const client::Admission& admission, client::Launch launch) {
  auto own = client::own_socket();
  client::SupervisedJob job{admission.job, 0, own.ok() && *own == connection.socket(), daemon, [](const std::string& t) { say(t); }};
  auto give_up = [&](const Error& error) {
    int code = fail_run(error);
    client::finish(&connection, admission.job, code);
    return code;
  };
  auto signals = client::SignalIntake::take();
  if (!signals) return give_up(signals.error());
  client::adopt_orphans();
  auto child = client::HeldChild::hold(launch, *signals);
  if (!child) return give_up(child.error());
  job.root = child->pid();
  if (auto done = client::start(&connection, admission.job, child->pid()); !done) return give_up(done.error());
  if (auto done = child->go(); !done)
    return give_up({done.error().code, "cannot execute " + launch.path + ": " + done.error().message});
  return client::Supervisor(std::move(connection), std::move(*signals), std::move(job)).run();
}

int run_job(const RunOptions& options, const std::vector<std::string>& command) {
  auto request = job_request(options, command);
  if (!request) return fail_run(request.error());
  auto program = client::find_program(command[0]);
  if (!program) return fail_run(program.error());
  if (const char* devices = std::getenv("CUDA_VISIBLE_DEVICES")) request->visible_devices = devices;

  pid_t daemon = 0;
  auto connection = client::connect_or_start_daemon(&daemon);
  if (!connection) return fail_run(connection.error());
  client::Launch launch{program->path, command, {}, std::nullopt};
  if (options.isolate) {
    auto plan = client::plan_isolation(connection->socket());
    if (!plan) return fail_run(plan.error());
    launch.isolation = std::move(*plan);
  }
  std::string told;
  auto admission = client::admit(&*connection, *request, [&](const Json& event) {
    if (event.value("event", "") == "message") return say(event.value("text", ""));
    if (event.value("event", "") != "queued" || !told.empty()) return;
    say(told = queue_text(event));
  }, &daemon);
  if (!admission) return fail_run(admission.error());
  launch.environment =
      client::program_environment(launch.isolation, admission->visible_devices, request->gpus.value_or(0));
  for (const std::string& note : admission->notes) say(note);
  warn_about(*program, command, options.isolate);
  warn_about_few_bytes(options.memory.value_or(""));
  return start_and_stay(std::move(*connection), daemon, *admission, std::move(launch));
}

}  // namespace

void add_run(CLI::App& app, const std::vector<std::string>& command, Outcome* outcome) {
  CLI::App* run = app.add_subcommand("run", "run a program on a GPU of its own");
  auto options = std::make_shared<RunOptions>();
  add_run_options(run, options.get());
  run->callback([options, &command, outcome] { outcome->exit_code = run_job(*options, command); });
}

}  // namespace berth::cli
