// berth kill: a signal to all processes of a job.
#include <csignal>
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/text.h"
#include "client/signals.h"

namespace berth::cli {
namespace {

struct KillOptions {
  std::string name, signal = "TERM";
};

int kill_job(const KillOptions& options) {
  auto name = check_job_reference(options.name);
  if (!name) return fail(name.error());
  auto signal = client::parse_signal(options.signal);
  if (!signal)
    return fail({"usage", "'" + options.signal + "' is not a signal: give a name such as TERM or INT, or a number"});
  auto reply = ask_daemon({{"op", "kill"}, {"name", *name}, {"signal", *signal}});
  return reply ? kExitOk : fail(reply.error());
}

}  // namespace

void add_kill(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("kill", "send a signal to all processes of a job");
  auto options = std::make_shared<KillOptions>();
  command->add_option("NAME", options->name, "the job; as root USER/NAME")->required();
  command->add_option("-s,--signal", options->signal, "TERM (default), SIGINT, 9 ...")->type_name("SIG");
  command->callback([options, outcome] { outcome->exit_code = kill_job(*options); });
}

}  // namespace berth::cli
