// How --help looks: names in one column, descriptions wrapped beside them, 80 characters wide.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace berth::cli {

class Help : public CLI::Formatter {
 public:
  // `usage` replaces the usage line that CLI11 would make.
  explicit Help(std::string usage = "") : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string usage_;
};

// "  name      text text\n            text\n"
std::string help_entry(const std::string& name, const std::string& description);

}  // namespace berth::cli
