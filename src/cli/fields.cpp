#include "cli/fields.h"

#include <fmt/format.h>

#include "base/size.h"
#include "cli/output.h"

namespace berth::cli {

const Json& field(const Json& object, const char* key) {
  static const Json kNull;
  auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

const Json& list(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const Json& found = field(object, key);
  return found.is_array() ? found : kNone;
}

std::optional<double> number(const Json& object, const char* key) {
  const Json& value = field(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<uint64_t> size_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  return value.is_number_integer() && value >= 0 ? std::optional(value.get<uint64_t>()) : std::nullopt;
}

uint64_t sum_of(const Json& objects, const char* key) {
  uint64_t sum = 0;
  for (const Json& object : objects) sum += size_of(object, key).value_or(0);
  return sum;
}

std::string text_cell(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (value.is_null()) return "-";
  return printable(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string size_cell(const Json& object, const char* key) {
  auto size = size_of(object, key);
  return size ? format_size(*size) : "-";
}

std::string ratio_cell(const Json& object, const char* key) {
  auto ratio = number(object, key);
  return ratio ? format_ratio(*ratio) : "-";
}

std::string seconds_cell(const Json& object, const char* key) {
  auto seconds = number(object, key);
  return seconds ? format_seconds(*seconds) : "-";
}

std::string format_ratio(double ratio) { return fmt::format("{:.0f}%", ratio * 100); }

std::string format_seconds(double seconds) {
  struct Unit {
    double below, size;
    int digits;
    const char* name;
  };
  // Each begins where the one before would need a further digit.
  static constexpr Unit kUnits[] = {{0.0009995, 1e-6, 0, "us"},
                                    {0.9995, 1e-3, 0, "ms"},
                                    {99.95, 1, 1, "s"},
                                    {5997, 60, 1, "min"},
                                    {359820, 3600, 1, "h"}};
  if (seconds < 0.5e-6) return "0 s";
  for (const Unit& unit : kUnits)
    if (seconds < unit.below) return fmt::format("{:.{}f} {}", seconds / unit.size, unit.digits, unit.name);
  return fmt::format("{:.0f} d", seconds / 86400);
}

}  // namespace berth::cli
