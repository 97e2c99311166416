#include "base/size.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace berth {
namespace {

Error not_a_size(std::string_view text) {
  return {"usage", "'" + std::string(text) + "' is not a size: give bytes, or a number with K, M, G or T such as 512M or 8G"};
}

// The leading decimal number of `text` (digits, at most one point), which is removed from it; NaN if there is none.
double take_number(std::string_view* text) {
  size_t length = 0;
  bool point = false, digit = false;
  while (length < text->size()) {
    char c = (*text)[length];
    if (c >= '0' && c <= '9') digit = true;
    else if (c == '.' && !point) point = true;
    else break;
    ++length;
  }
  if (!digit || length > 32) return NAN;
  double value = std::strtod(std::string(text->substr(0, length)).c_str(), nullptr);
  text->remove_prefix(length);
  return value;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  std::string_view rest = text;
  double number = take_number(&rest);
  if (std::isnan(number)) return not_a_size(text);
  std::string unit;
  for (char c : rest) unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (!unit.empty() && unit != "b") {
    static constexpr std::string_view kUnits = "kmgt";
    size_t power = kUnits.find(unit[0]);
    std::string tail = unit.substr(1);
    if (power == std::string_view::npos || (!tail.empty() && tail != "b" && tail != "ib")) return not_a_size(text);
    number *= std::pow(1024.0, static_cast<double>(power + 1));
  }
  if (number >= 9223372036854775808.0 || (number > 0 && number < 1)) return not_a_size(text);
  return static_cast<uint64_t>(number);
}

Result<std::optional<uint64_t>> parse_quota(std::string_view text, uint64_t total) {
  if (text.empty()) return std::optional<uint64_t>();
  if (text.back() == '%') {
    std::string_view number = text.substr(0, text.size() - 1);
    double percent = take_number(&number);
    if (std::isnan(percent) || !number.empty() || percent > 100)
      return Error{"usage", "'" + std::string(text) + "' is not a share of the device: give a percentage up to 100%, without blanks, such as 25%"};
    if (percent == 0) return std::optional<uint64_t>();
    return std::optional<uint64_t>(static_cast<uint64_t>(static_cast<double>(total) * percent / 100));
  }
  auto size = parse_size(text);
  if (!size) return Error{size.error().code, size.error().message + ", or a percentage of the device such as 25%"};
  if (*size == 0) return std::optional<uint64_t>();
  return std::optional<uint64_t>(*size);
}

std::string format_size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1023.95 && unit < 6) value /= 1024, ++unit;
  char text[32];
  bool whole = unit == 0 || value >= 99.95 || value == std::floor(value);
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace berth
