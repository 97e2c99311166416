#include "sim/settings.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/size.h"

namespace berth::sim {
namespace {

// The value of a number variable; one that is no number is reported once and then ignored.
std::optional<double> number(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return {};
  char* end = nullptr;
  double value = std::strtod(text, &end);
  if (*end == '\0' && value >= 0 && value < 1e15) return value;
  std::fprintf(stderr, "berth-sim: %s is '%s', which is not a number from 0 up: ignored\n", name, text);
  return {};
}

std::optional<uint64_t> size(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return {};
  auto value = parse_size(text);
  if (value) return *value;
  std::fprintf(stderr, "berth-sim: %s: %s: ignored\n", name, value.error().message.c_str());
  return {};
}

std::string default_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime && *runtime && access(runtime, W_OK) == 0) return std::string(runtime) + "/berth-sim";
  return "/dev/shm/berth-sim-" + std::to_string(getuid());
}

Settings read_settings() {
  Settings result;
  const char* folder = std::getenv("BERTH_SIM_DIR");
  result.folder = folder && *folder ? folder : default_folder();
  if (auto cards = number("BERTH_SIM_GPUS")) result.cards = static_cast<unsigned>(*cards);
  result.memory = size("BERTH_SIM_MEMORY");
  result.context_bytes = size("BERTH_SIM_CONTEXT").value_or(kDefaultContext);
  if (auto exit = number("BERTH_SIM_EXIT_MS")) result.exit_ns = static_cast<int64_t>(*exit * 1e6);
  result.speed = number("BERTH_SIM_SPEED").value_or(1.0);
  if (result.speed <= 0) result.speed = 1.0;
  if (const char* faults = std::getenv("BERTH_SIM_FAULTS")) result.faults = faults;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) result.visible = visible;
  return result;
}

}  // namespace

const Settings& settings() {
  static const Settings* const the_settings = new Settings(read_settings());
  return *the_settings;
}

}  // namespace berth::sim
