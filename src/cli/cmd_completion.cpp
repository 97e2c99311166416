// berth completion: scripts for shells, made from the command line's own definition.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

constexpr const char* kJobNames = "berth ps 2>/dev/null | awk 'NR > 1 && /^[^ ]/ {print $1}'";

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "-m --memory ...", those that this version refuses left out.
std::vector<const CLI::Option*> options_of(const CLI::App* command) {
  return command->get_options([](const CLI::Option* option) {
    return option->nonpositional() && !option->get_group().empty() && option->get_description().find("not available") == std::string::npos;
  });
}

std::vector<std::string> spellings(const CLI::Option* option) {
  std::vector<std::string> result;
  for (const std::string& name : option->get_snames()) result.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) result.push_back("--" + name);
  return result;
}

std::string names_a_job(const CLI::App* command) {
  return command->get_option_no_throw("NAME") && !command->get_parent()->get_parent() ? "yes" : "";
}

std::string words(const std::vector<const CLI::App*>& commands) {
  std::string result;
  for (const CLI::App* command : commands) result += (result.empty() ? "" : " ") + command->get_name();
  return result;
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    std::string options, rest;
    for (const CLI::Option* option : options_of(command))
      for (const std::string& name : spellings(option)) options += name + " ";
    for (const CLI::App* inner : commands_of(*command)) rest += inner->get_name() + " ";
    if (command->get_name() == "completion") rest = "bash zsh fish";
    if (!names_a_job(command).empty()) rest += fmt::format("$({})", kJobNames);
    cases += fmt::format("    {}) words=\"{}{}\" ;;\n", command->get_name(), options, rest);
  }
  return fmt::format(R"(# bash completion for berth; use: source <(berth completion bash)
_berth() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ "${{COMP_WORDS[1]}}" = run ] && [ "${{word#-}}" = "$word" ]; then
    COMPREPLY+=($(compgen -c -f -- "$word"))
  fi
}}
complete -o default -F _berth berth
)",
                     words(commands_of(app)), cases);
}

std::string zsh_quoted(std::string text) {
  std::string result;
  for (char c : text) {
    if (c == '\'') { result += "'\\''"; continue; }
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_script(const CLI::App& app) {
  std::string list, cases;
  for (const CLI::App* command : commands_of(app)) {
    list += fmt::format("    '{}:{}'\n", command->get_name(), zsh_quoted(command->get_description()));
    std::string specs;
    for (const CLI::Option* option : options_of(command))
      for (const std::string& name : spellings(option))
        specs += fmt::format(" '{}[{}]{}'", name, zsh_quoted(option->get_description()),
                             option->get_items_expected_min() > 0 ? ":value:" : "");
    if (command->get_name() == "run") specs += " '*::command:_normal'";
    if (command->get_name() == "completion") specs += " '1:shell:(bash zsh fish)'";
    if (auto inner = commands_of(*command); !inner.empty()) specs += fmt::format(" '1:what:({})'", words(inner));
    if (!names_a_job(command).empty()) specs += fmt::format(" \"1:job:($({}))\"", kJobNames);
    cases += fmt::format("    {}) _arguments{} ;;\n", command->get_name(), specs);
  }
  return fmt::format(R"(#compdef berth
# zsh completion for berth; save as _berth in a folder of $fpath
_berth() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words; (( CURRENT-- ))
  case "$words[1]" in
{}  esac
}}
_berth "$@"
)",
                     list, cases);
}

std::string fish_quoted(const std::string& text) {
  std::string result;
  for (char c : text) result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "'" + result + "'";
}

std::string fish_script(const CLI::App& app) {
  std::string result = "# fish completion for berth; save as ~/.config/fish/completions/berth.fish\ncomplete -c berth -f\n";
  for (const CLI::App* command : commands_of(app)) {
    std::string name = command->get_name(), chosen = "'__fish_seen_subcommand_from " + name + "'";
    result += fmt::format("complete -c berth -n __fish_use_subcommand -a {} -d {}\n", name,
                          fish_quoted(command->get_description()));
    for (const CLI::Option* option : options_of(command)) {
      std::string names;
      for (const std::string& letter : option->get_snames()) names += " -s " + letter;
      for (const std::string& word : option->get_lnames()) names += " -l " + word;
      result += fmt::format("complete -c berth -n {}{}{} -d {}\n", chosen, names,
                            option->get_items_expected_min() > 0 ? " -x" : "", fish_quoted(option->get_description()));
    }
    if (name == "run")
      result += fmt::format("complete -c berth -n {} -xa '(__fish_complete_subcommand --fcs-skip=2)'\n", chosen);
    if (name == "completion") result += fmt::format("complete -c berth -n {} -a 'bash zsh fish'\n", chosen);
    if (auto inner = commands_of(*command); !inner.empty())
      result += fmt::format("complete -c berth -n {} -a '{}'\n", chosen, words(inner));
    if (!names_a_job(command).empty())
      result += fmt::format("complete -c berth -n {} -a \"(berth ps 2>/dev/null | string match -rg '^([^ ]+)')\"\n", chosen);
  }
  return result;
}

int complete_for(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") print(bash_script(app));
  else if (shell == "zsh") print(zsh_script(app));
  else if (shell == "fish") print(fish_script(app));
  else return fail({"usage", "'" + shell + "' is not a shell that berth knows: give bash, zsh or fish"});
  return kExitOk;
}

}  // namespace

void add_completion(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("completion", "print a completion script for bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([&app, shell, outcome] { outcome->exit_code = complete_for(app, *shell); });
}

}  // namespace berth::cli
