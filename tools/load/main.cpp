// berth-load: a small CUDA driver program for demonstrations, tests and benchmarks. It knows nothing of berth: it sees
// a GPU, real or simulated, shared or not.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>

#include "base/size.h"
#include "modes.h"
#include "timing.h"

namespace berth::load {
namespace {

constexpr int kFailed = 1, kUsage = 2;

const std::map<std::string, Kind> kKinds{{"linear", Kind::linear},   {"async", Kind::async}, {"vmm", Kind::vmm},
                                         {"managed", Kind::managed}, {"pitch", Kind::pitch}, {"array", Kind::array}};
const std::map<std::string, Lookup> kLookups{{"dlsym", Lookup::dlsym}, {"proc-address", Lookup::proc_address}};

template <class T>
std::string name_of(const std::map<std::string, T>& names, T value) {
  for (const auto& [name, named] : names)
    if (named == value) return name;
  return "";
}

template <class T>
std::string names_of(const std::map<std::string, T>& names) {
  std::string all;
  for (const auto& [name, value] : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

void add_size(CLI::App* app, const std::string& name, uint64_t* target, const std::string& text) {
  auto set = [name, target](const std::string& given) {
    auto size = parse_size(given);
    if (!size) throw CLI::ValidationError(name + ": " + size.error().message);
    *target = *size;
  };
  app->add_option_function<std::string>(name, set, text)->type_name("SIZE");
}

template <class T>
void add_choice(CLI::App* app, const std::string& name, T* target, const std::map<std::string, T>& choices,
                const std::string& text) {
  auto set = [name, &choices, target](const std::string& given) {
    auto found = choices.find(given);
    if (found == choices.end()) throw CLI::ValidationError(name + ": '" + given + "' is none of " + names_of(choices));
    *target = found->second;
  };
  app->add_option_function<std::string>(name, set, text + ": " + names_of(choices))->type_name("WHICH");
}

// A check like CLI::Range, in our words.
CLI::Validator between(double low, double high) {
  auto check = [low, high](const std::string& given) {
    double value = NAN;
    bool inside = CLI::detail::lexical_cast(given, value) && value >= low && value <= high;
    return inside ? std::string() : fmt::format("'{}' is not a number from {} to {}", given, low, high);
  };
  return CLI::Validator(check, "");
}

// What CLI11 found wrong, as berth says it.
std::string usage_message(const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) return "'" + text.substr(text.find(": ") + 2) + "' is not expected here";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && text.find("required") != std::string::npos)
    return text.substr(0, text.find(':')) + " needs a value";
  static const std::string kConversion = "Could not convert: ";
  size_t equals = text.find(" = ");
  if (!text.starts_with(kConversion) || equals == std::string::npos) return text;
  return text.substr(kConversion.size(), equals - kConversion.size()) + ": '" + text.substr(equals + 3) + "' is not a number";
}

void add_work(CLI::App* mode, Options* options, const std::string& kernels, const std::string& kernel_us) {
  mode->add_option("--kernels", options->kernels, "kernels in each (default " + kernels + ")")
      ->check(between(1, 100000));
  mode->add_option("--kernel-us", options->kernel_us, "length of a kernel in microseconds (default " + kernel_us + ")")
      ->check(between(1, 60000000));
  mode->add_flag("--graph", options->graph, "submit each as one CUDA graph");
}

void add_common(CLI::App* app, Options* options) {
  add_size(app, "--bytes", &options->bytes,
           "device memory to use (default 64M; alloc 256M, or all there is with --grow)");
  add_size(app, "--step", &options->step, "allocate in pieces of this size");
  app->add_option("--seconds", options->seconds, "how long")->capture_default_str()->check(between(0, 10000000));
  add_choice(app, "--kind", &options->kind, kKinds, "kind of allocation (default linear)");
  add_choice(app, "--lookup", &options->lookup, kLookups, "how driver functions are found (default dlsym)");
  app->add_option("--device", options->device, "which device the program uses")->capture_default_str();
  app->add_option("--seed", options->seed, "of patterns and arrivals")->capture_default_str();
  app->add_flag("--json", options->json, "one JSON object a line: an event \"ready\", then the \"result\"");
}

void describe_command(CLI::App* app, Options* options) {
  app->set_version_flag("--version", "berth-load " BERTH_VERSION);
  add_common(app, options);
  CLI::App* alloc = app->add_subcommand("alloc", "allocate and hold");
  alloc->add_flag("--grow", options->grow, "go on, 256M or --step at a time, until refused");
  add_size(alloc, "--write", &options->write,
           "pattern at either end of each allocation, verified at the end (default 1M)");
  CLI::App* infer = app->add_subcommand("infer", "answer requests that come at random (Poisson, open loop)");
  infer->add_option("--rate", options->rate, "requests a second")->capture_default_str()->check(between(0.001, 1000000));
  add_work(infer, options, "20", "50");
  CLI::App* train = app->add_subcommand("train", "back-to-back steps");
  add_work(train, options, "10", "200");
  CLI::App* check = app->add_subcommand("check", "write patterns and verify them, over and over (the default)");
  for (CLI::App* mode : {alloc, infer, train, check}) add_common(mode, options);
  app->require_subcommand(0, 1);
}

Report common(const Options& options, const char* event) {
  return {{"schema", 1}, {"event", event}, {"mode", options.mode}, {"pid", ::getpid()}};
}

void print_line(const Report& report) {
  fmt::print("{}\n", report.dump());
  std::fflush(stdout);
}

void tell_ready(const Options& options, const Report& state) {
  if (!options.json) return;
  Report line = common(options, "ready");
  line.update(state);
  print_line(line);
}

std::string for_people(const std::string& key, const Report& value) {
  if (key.ends_with("bytes")) return format_size(value.get<uint64_t>());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (!value.is_object()) return value.dump();
  return fmt::format("{} of {} answered {} ({})", value["call"].get<std::string>(),
                     format_size(value["asked_bytes"].get<uint64_t>()), value["name"].get<std::string>(),
                     value["code"].get<int>());
}

void print_table(const Report& report) {
  for (const auto& [key, value] : report.items())
    if (key != "schema" && key != "event") fmt::print("{:<16}{}\n", key, for_people(key, value));
}

// Managed memory beyond what is free can hang a GPU, so it is never asked for.
void check_managed(const Session& session, const Options& options) {
  if (options.kind != Kind::managed) return;
  if (options.bytes == 0) throw Error{"usage", "--kind managed wants an explicit --bytes"};
  if (uint64_t free = session.free_bytes(); options.bytes > free)
    throw Error{"refused", "managed memory of " + format_size(options.bytes) + " was asked for, " + format_size(free) +
                               " are free; ask for less"};
}

Report run_mode(Session& session, const Options& options) {
  if (options.mode == "alloc") return run_alloc(session, options, tell_ready);
  if (options.kind == Kind::array && options.mode != "check")
    throw Error{"usage", options.mode + " needs memory that kernels can address: not --kind array"};
  if (options.mode == "infer") return run_infer(session, options, tell_ready);
  if (options.mode == "train") return run_train(session, options, tell_ready);
  return run_check(session, options, tell_ready);
}

int run(const Options& options) {
  Session session(open_driver(options.lookup), options.device);
  check_managed(session, options);
  Report report = common(options, "result");
  report.update({{"device", session.device_name()},
                 {"total_bytes", session.total_bytes()},
                 {"kind", name_of(kKinds, options.kind)},
                 {"init_ms", rounded(1000 * session.init_seconds())},
                 {"context_ms", rounded(1000 * session.context_seconds())}});
  report.update(run_mode(session, options));
  options.json ? print_line(report) : print_table(report);
  return report["wrong"] != 0 || report["ended_by"] == "refusal" ? kFailed : 0;
}

int report_error(const Options& options, const Error& error) {
  fmt::print(stderr, "berth-load: {}\n", error.message);
  if (options.json) {
    Report line = common(options, "error");
    line["error"] = {{"code", error.code}, {"message", error.message}};
    print_line(line);
  }
  return error.code == "usage" ? kUsage : kFailed;
}

void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace
}  // namespace berth::load

int main(int argc, char** argv) {
  using namespace berth::load;
  Options options;
  CLI::App app{"A small CUDA program: allocates, answers requests, trains or verifies on the GPU it sees.",
               "berth-load"};
  describe_command(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "berth-load: {}; see berth-load --help\n", usage_message(error));
    return kUsage;
  }
  if (!app.get_subcommands().empty()) options.mode = app.get_subcommands()[0]->get_name();
  stop_on_signals();
  try {
    return run(options);
  } catch (const berth::Error& error) {
    return report_error(options, error);
  }
}
