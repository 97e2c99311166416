// berth ps: jobs and clients.
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/text.h"
#include "cli/views.h"

namespace berth::cli {
namespace {

struct PsOptions {
  bool all = false, json = false;
  std::string watch;
};

Json no_jobs() { return {{"schema", 1}, {"jobs", Json::array()}}; }

Result<Json> read_jobs(bool all) {
  auto reply = ask_daemon({{"op", "ps"}, {"all", all}});
  if (!reply && is_only_idle(reply.error())) return no_jobs();
  return reply;
}

int watch(const PsOptions& options, double seconds) {
  for (bool first = true;; first = false) {
    auto jobs = read_jobs(options.all);
    if (!jobs && !first && jobs.error().code == "unreachable") jobs = no_jobs();  // it ends when there is nothing to do
    if (!jobs) return fail(jobs.error(), options.json);
    if (options.json) {
      print_json_line(*jobs);
    } else {
      if (stdout_is_terminal()) print("\033[H\033[2J");
      else if (!first) print("\n");
      print(ps_view(*jobs, look_of_stdout()));
      if (std::fflush(stdout) != 0) return kExitRefused;  // nobody reads any more
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
}

int ps(const PsOptions& options) {
  if (!options.watch.empty()) {
    auto seconds = parse_interval(options.watch, "--watch=2");
    if (!seconds) return fail(seconds.error(), options.json);
    return watch(options, *seconds);
  }
  return show(read_jobs(options.all), options.json, [](const Json& jobs) { return ps_view(jobs, look_of_stdout()); });
}

}  // namespace

void add_ps(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("ps", "show jobs and their clients");
  auto options = std::make_shared<PsOptions>();
  command->add_flag("-a,--all", options->all, "ended jobs too");
  command->add_flag("--watch{2}", options->watch, "again every 2 seconds, or every S seconds")->type_name("S");
  command->add_flag("--json", options->json, "for programs; see docs/json.md");
  command->callback([options, outcome] { outcome->exit_code = ps(*options); });
}

}  // namespace berth::cli
