#include "sim/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

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

// The values of a list, one for each of its parts; none of them where one makes no sense.
template <class Read>
auto list(const char* name, Read read) -> std::vector<typename decltype(read(""))::value_type> {
  std::vector<typename decltype(read(""))::value_type> values;
  const char* text = std::getenv(name);
  if (!text || !*text) return values;
  for (std::string_view rest = text;;) {
    std::string part(rest.substr(0, rest.find(',')));
    auto value = read(part.c_str());
    if (!value) {
      std::fprintf(stderr, "berth-sim: %s has '%s', which makes no sense: ignored\n", name, part.c_str());
      return {};
    }
    values.push_back(*value);
    if (part.size() == rest.size()) return values;
    rest.remove_prefix(part.size() + 1);
  }
}

std::optional<uint64_t> memory_size(const char* text) {
  auto value = parse_size(text);
  return value && *value > 0 ? std::optional(*value) : std::nullopt;
}

std::optional<int> compute_mode(const char* text) {
  static constexpr std::pair<std::string_view, int> kModes[] = {
      {"default", 0}, {"exclusive_thread", 1}, {"prohibited", 2}, {"exclusive", 3}, {"exclusive_process", 3}};
  for (const auto& [name, mode] : kModes)
    if (name == text) return mode;
  return std::nullopt;
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
  result.memory = list("BERTH_SIM_MEMORY", memory_size);
  result.compute_modes = list("BERTH_SIM_COMPUTE_MODE", compute_mode);
  size_t listed = std::max(result.memory.size(), result.compute_modes.size());
  if (auto cards = number("BERTH_SIM_GPUS")) result.cards = static_cast<unsigned>(*cards);
  else if (listed > 1) result.cards = static_cast<unsigned>(listed);
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
