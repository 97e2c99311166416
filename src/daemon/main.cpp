// berthd: command line, signals, and the loop.
#include <getopt.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <asio/signal_set.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/paths.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

namespace {

using namespace berth;
using namespace berth::daemon;

constexpr const char* kSystemConfig = "/etc/berth/berth.toml";
constexpr const char* kUsage =
    "usage: berthd [--config FILE] [--socket PATH] [--idle-seconds N] [--system] [--version]\n"
    "  --config FILE      settings (else BERTH_CONFIG; with --system else /etc/berth/berth.toml)\n"
    "  --socket PATH      where to listen (else BERTH_SOCKET, the settings, the usual place)\n"
    "  --idle-seconds N   a user's own daemon ends so long after its last job; 0 = never (default 60)\n"
    "  --system           serve all users of this machine\n";

struct Options {
  std::string config, socket;
  double idle_seconds = 60;
  bool system = false;
};

int wrong_usage(const std::string& what) {
  std::fprintf(stderr, "berthd: %s\n%s", what.c_str(), kUsage);
  return 2;
}

// An exit code if the program is done already.
std::optional<int> read_options(int argc, char** argv, Options* options) {
  static const option known[] = {{"config", required_argument, nullptr, 'c'},
                                 {"socket", required_argument, nullptr, 's'},
                                 {"idle-seconds", required_argument, nullptr, 'i'},
                                 {"system", no_argument, nullptr, 'S'},
                                 {"foreground", no_argument, nullptr, 'f'},
                                 {"version", no_argument, nullptr, 'v'},
                                 {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  opterr = 0;
  for (int choice; (choice = ::getopt_long(argc, argv, "+h", known, nullptr)) != -1;) {
    switch (choice) {
      case 'c':
      case 's':
        if (!*optarg) return wrong_usage(choice == 'c' ? "--config needs a file" : "--socket needs a path");
        (choice == 'c' ? options->config : options->socket) = optarg;
        break;
      case 'S':
        options->system = true;
        break;
      case 'f':
        break;
      case 'v':
        std::printf("berthd %s\n", BERTH_VERSION);
        return 0;
      case 'h':
        std::fputs(kUsage, stdout);
        return 0;
      case 'i': {
        char* end = nullptr;
        options->idle_seconds = std::strtod(optarg, &end);
        if (end == optarg || *end || !std::isfinite(options->idle_seconds) || options->idle_seconds < 0 ||
            options->idle_seconds > 1e8)
          return wrong_usage("'" + std::string(optarg) + "' is no number of seconds");
        break;
      }
      default:
        return wrong_usage("unknown option or missing value: " + std::string(argv[optind - 1]));
    }
  }
  if (optind < argc) return wrong_usage("unknown argument: " + std::string(argv[optind]));
  return std::nullopt;
}

Result<Settings> settle_settings(const Options& options) {
  Settings settings;
  settings.system = options.system;
  settings.idle_seconds = options.idle_seconds;
  std::string file = options.config;
  if (const char* named = std::getenv("BERTH_CONFIG"); file.empty() && named) file = named;
  if (file.empty() && options.system && ::access(kSystemConfig, F_OK) == 0) file = kSystemConfig;
  if (!file.empty()) {
    auto config = read_config(file);
    if (!config) return config.error();
    settings.config = std::move(*config);
  }
  settings.socket = options.socket;
  if (const char* named = std::getenv("BERTH_SOCKET"); settings.socket.empty() && named) settings.socket = named;
  if (settings.socket.empty()) settings.socket = settings.config.socket.value_or("");
  if (settings.socket.empty() && options.system) settings.socket = kSystemSocket;
  if (settings.socket.empty()) {
    auto folder = user_runtime_folder();
    if (!folder) return folder.error();
    settings.socket = *folder + "/berth.sock";
  }
  settings.state_file = state_file_of(settings.socket);
  if (const char* driver = std::getenv("BERTH_DRIVER")) settings.driver = driver;
  return settings;
}

// Each program costs a connection and a pidfd.
void raise_descriptor_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (auto done = read_options(argc, argv, &options)) return *done;
  if (options.system && ::geteuid() != 0) return wrong_usage("--system needs root");
  auto settings = settle_settings(options);
  if (!settings) {
    log_line(settings.error().message);
    return settings.error().code == "usage" ? 2 : 1;
  }
  if (options.system) ::mkdir(settings->socket.substr(0, settings->socket.rfind('/')).c_str(), 0755);
  ::umask(0077);
  raise_descriptor_limit();

  asio::io_context loop(1);
  Daemon daemon(loop, std::move(*settings), make_nvml_source());
  asio::signal_set signals(loop, SIGTERM, SIGINT, SIGHUP);
  signals.async_wait([&](asio::error_code error, int) {
    if (!error) daemon.stop();
  });
  if (auto status = daemon.open(); !status) {
    log_line(status.error().message);
    return 1;
  }
  loop.run();
  return 0;
}
