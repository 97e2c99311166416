#include "cli/command_line.h"

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

constexpr const char* kDescription =
    "berth lets many unmodified CUDA programs share one GPU as if each had its own.\n"
    "Try: berth run -m 8G python train.py";

bool takes_value(const CLI::App& run, const std::string& name) {
  const CLI::Option* option = run.get_option_no_throw(name);
  return option && option->get_items_expected_min() > 0;
}

// "--name=" gives an option that takes a value an empty one, which CLI11 would not see.
std::vector<std::string> with_empty_values(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (const std::string& word : words) {
    bool empty = word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1;
    std::string name = word.substr(0, word.size() - (empty ? 1 : 0));
    if (empty && takes_value(command, name))
      result.insert(result.end(), {name, ""});
    else
      result.push_back(word);
  }
  return result;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

RunSplit split_run_arguments(const CLI::App& run, const std::vector<std::string>& arguments) {
  size_t at = 0;
  while (at < arguments.size()) {
    const std::string& word = arguments[at];
    if (word.size() < 2 || word[0] != '-') break;
    if (word == "--") {
      return {{arguments.begin(), arguments.begin() + static_cast<long>(at)},
              {arguments.begin() + static_cast<long>(at) + 1, arguments.end()}};
    }
    bool alone = word[1] == '-' ? word.find('=') == std::string::npos : word.size() == 2;
    at += alone && takes_value(run, word) ? 2 : 1;
  }
  at = std::min(at, arguments.size());
  return {{arguments.begin(), arguments.begin() + static_cast<long>(at)},
          {arguments.begin() + static_cast<long>(at), arguments.end()}};
}

std::string usage_message(const CLI::ParseError& error, const std::string& command) {
  std::string text = error.what(), help = "; see berth " + (command.empty() ? "" : command + " ") + "--help";
  std::string option = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && text.find("required") != std::string::npos)
    return option + " needs a value" + help;
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) {
    size_t list = text.find(": ");
    return "'" + text.substr(list == std::string::npos ? 0 : list + 2) + "' is not expected here" + help;
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) && text.find("ubcommand") != std::string::npos)
    return (command.empty() ? "a command is missing" : "what to do with berth " + command + " is missing") + help;
  return replaced(text, " is required", " is missing") + help;
}

int run_command_line(const std::vector<std::string>& arguments) {
  CLI::App app(kDescription, "berth");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_help_flag("-h,--help", "show this help");
  app.set_version_flag("--version", std::string("berth ") + BERTH_VERSION, "show the version");
  app.formatter(std::make_shared<Help>());
  app.require_subcommand(1);
  Outcome outcome;
  std::vector<std::string> program;
  add_run(app, program, &outcome);
  add_ps(app, &outcome);
  add_top(app, &outcome);
  add_gpus(app, &outcome);
  add_set(app, &outcome);
  add_pause(app, &outcome);
  add_kill(app, &outcome);
  add_container(app, &outcome);
  add_events(app, &outcome);
  add_daemon(app, &outcome);
  add_doctor(app, &outcome);
  add_completion(app, &outcome);

  std::string command = arguments.empty() || arguments[0].rfind("-", 0) == 0 ? "" : arguments[0];
  if (!command.empty() && app.get_subcommands([&](CLI::App* known) { return known->get_name() == command; }).empty())
    return fail({"usage", "there is no command '" + command + "'; see berth --help"});
  std::string full_command = command;
  std::vector<std::string> words = arguments;
  if (!command.empty()) {
    const CLI::App* chosen = app.get_subcommand(command);
    words.erase(words.begin());
    if (command == "run") {
      RunSplit split = split_run_arguments(*chosen, words);
      program = split.command;
      words = split.options;
    }
    for (const CLI::App* inner : chosen->get_subcommands([](const CLI::App*) { return true; }))  // "container add"
      if (!words.empty() && inner->get_name() == words[0]) chosen = inner;
    words = with_empty_values(*chosen, words);
    words.insert(words.begin(), command);
    if (chosen->get_name() != command) full_command += " " + chosen->get_name();
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    bool json = command != "run" && std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    std::string message = usage_message(error, full_command);
    if (command.empty() && !arguments.empty()) message = "'" + arguments[0] + "' is not expected here; see berth --help";
    int code = fail({"usage", message}, json);
    return command == "run" ? kExitBerth : code;
  }
  return outcome.exit_code;
}

}  // namespace berth::cli
