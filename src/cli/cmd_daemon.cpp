// berth daemon: becomes berthd.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/run_options.h"

namespace berth::cli {
namespace {

struct DaemonOptions {
  std::optional<std::string> config, socket;
};

int become_daemon(const DaemonOptions& options) {
  std::string path = executable_folder() + "/berthd";
  std::vector<std::string> words{path};
  if (options.config) words.insert(words.end(), {"--config", *options.config});
  if (options.socket) words.insert(words.end(), {"--socket", *options.socket});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return fail({"internal", "cannot execute " + path + ": " + std::strerror(errno)});
}

}  // namespace

void add_daemon(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("daemon", "run the daemon here, in the foreground");
  auto options = std::make_shared<DaemonOptions>();
  add_text(command, "--config", &options->config, "its settings (TOML)")->type_name("FILE");
  add_text(command, "--socket", &options->socket, "where it listens")->type_name("PATH");
  command->callback([options, outcome] { outcome->exit_code = become_daemon(*options); });
}

}  // namespace berth::cli
