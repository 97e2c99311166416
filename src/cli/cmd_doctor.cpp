// berth doctor: all checks, as a table or as JSON.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/output.h"

namespace berth::cli {
namespace {

struct DoctorOptions {
  bool test = false, json = false, which_driver = false;
};

const char* word_for(Health health) {
  return health == Health::ok ? "ok" : health == Health::warning ? "warning" : "failed";
}

const char* colour_for(Health health) {
  return health == Health::ok ? "\033[32m" : health == Health::warning ? "\033[33m" : "\033[31m";
}

// What a program that asks for the driver by name would get here.
int print_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  link_map* map = nullptr;
  if (!library || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return kExitRefused;
  print(map->l_name);
  return kExitOk;
}

void add(Checks more, Checks* checks) { checks->insert(checks->end(), more.begin(), more.end()); }

int doctor(const DoctorOptions& options) {
  if (options.which_driver) return print_driver();
  Checks checks = check_system();
  add(check_driver(), &checks);
  add(check_berth(), &checks);
  if (options.test) {
    if (worst(checks) == Health::failed)
      checks.push_back({"test", Health::failed, "not run", "mend what has failed above first"});
    else
      add(check_by_running(), &checks);
  }
  if (options.json)
    print_json(doctor_json(checks));
  else
    print(doctor_text(checks, use_colour()));
  return doctor_exit_code(checks);
}

}  // namespace

Health worst(const Checks& checks) {
  Health result = Health::ok;
  for (const Check& check : checks) result = std::max(result, check.health);
  return result;
}

int doctor_exit_code(const Checks& checks) { return static_cast<int>(worst(checks)); }

Json doctor_json(const Checks& checks) {
  Json list = Json::array();
  for (const Check& check : checks)
    list.push_back({{"name", check.name}, {"result", word_for(check.health)}, {"found", check.found},
                    {"advice", check.advice.empty() ? Json() : Json(check.advice)}});
  return {{"schema", 1}, {"result", word_for(worst(checks))}, {"checks", list}};
}

std::string doctor_text(const Checks& checks, bool colour) {
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    std::string word = word_for(check.health), blanks(8 - word.size(), ' ');
    if (colour) word = colour_for(check.health) + word + "\033[0m";
    text += word + blanks + check.name + std::string(width - check.name.size() + 2, ' ') + printable(check.found) + "\n";
    if (!check.advice.empty()) text += std::string(8 + width + 2, ' ') + "> " + printable(check.advice) + "\n";
  }
  static constexpr const char* kLast[] = {"Sharing works here.\n", "Sharing works here, with the warnings above.\n",
                                          "Sharing can't work here before what has failed above is mended.\n"};
  return text + kLast[static_cast<int>(worst(checks))];
}

void add_doctor(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("doctor", "look for what would stop sharing here, and how to mend it");
  auto options = std::make_shared<DoctorOptions>();
  command->add_flag("--test", options->test, "run two programs too, and prove that quotas hold, patterns are right and both make progress");
  command->add_flag("--json", options->json, "for programs; see docs/json.md");
  command->add_flag("--which-driver", options->which_driver, "")->group("");  // for check_reach()
  command->footer("Exit code: 0 all is well; 1 warnings; 2 sharing can't work.");
  command->callback([options, outcome] { outcome->exit_code = doctor(*options); });
}

}  // namespace berth::cli
