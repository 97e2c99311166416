#include "cli/help.h"

#include <sstream>

namespace berth::cli {
namespace {

constexpr size_t kNameWidth = 26, kWidth = 80;

}  // namespace

std::string help_entry(const std::string& name, const std::string& description) {
  std::string line = "  " + name, result;
  if (line.size() + 2 > kNameWidth) result = line + "\n", line.clear();
  line.resize(kNameWidth, ' ');
  size_t start = line.size();
  std::istringstream words(description);
  for (std::string word; words >> word;) {
    if (line.size() > start && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line.assign(kNameWidth, ' ');
    }
    line += (line.size() > kNameWidth ? " " : "") + word;
  }
  return result + line + "\n";
}

std::string Help::make_usage(const CLI::App* app, std::string name) const {
  return usage_.empty() ? CLI::Formatter::make_usage(app, std::move(name)) : usage_;
}

std::string Help::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name;
  if (is_positional) name = option->get_name(true);
  for (const std::string& letter : option->get_snames()) name += (name.empty() ? "-" : ", -") + letter;
  for (const std::string& word : option->get_lnames()) name += (name.empty() ? "--" : ", --") + word;
  std::string type = option->get_type_name();
  if (!is_positional && option->get_items_expected_min() > 0) name += " " + type;
  // A flag with a type takes its value only behind '='.
  if (!is_positional && option->get_items_expected_min() == 0 && !type.empty()) name += "[=" + type + "]";
  return help_entry(name, option->get_description());
}

std::string Help::make_subcommand(const CLI::App* command) const {
  return help_entry(command->get_name(), command->get_description());
}

}  // namespace berth::cli
