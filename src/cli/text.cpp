#include "cli/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/size.h"
#include "client/job.h"

namespace berth::cli {
namespace {

Error usage(std::string message) { return {"usage", std::move(message)}; }

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// All of `text` as a plain non-negative decimal number.
std::optional<double> decimal(std::string_view text) {
  bool point = false;
  if (text.empty() || text.size() > 32 || !is_digit(text[0])) return std::nullopt;
  for (char c : text) {
    if (c == '.' && !point) point = true;
    else if (!is_digit(c)) return std::nullopt;
  }
  return std::strtod(std::string(text).c_str(), nullptr);
}

std::optional<long> whole(std::string_view text) {
  long value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<double> parse_share(std::string_view text) {
  std::string_view number = text;
  if (!number.empty() && number.back() == '%') number.remove_suffix(1);
  auto value = decimal(number);
  if (!value || *value <= 0 || *value > 100)
    return usage(quoted(text) + " is not a share of GPU time: give a percentage above 0 and up to 100, such as 50%");
  return *value / 100;
}

Result<double> parse_slowdown(std::string_view text) {
  auto value = decimal(text);
  if (!value || *value < 1 || *value > 100)
    return usage(quoted(text) + " is not a slowdown: give a number from 1 (none at all) to 100, such as 1.1");
  return *value;
}

std::optional<double> parse_rfc3339(std::string_view text) {
  std::string copy(text);
  int year, month, day, hour, minute, used = 0;
  double second;
  char separator;
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2d%c%2d:%2d:%lf%n", &year, &month, &day, &separator, &hour, &minute, &second,
                  &used) != 7 || (separator != 'T' && separator != 't' && separator != ' '))
    return std::nullopt;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || !(second >= 0 && second < 61) ||
      hour < 0 || minute < 0)
    return std::nullopt;
  std::string_view zone = text.substr(static_cast<size_t>(used));
  int offset = 0;
  if (zone != "Z" && zone != "z") {
    if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-') || zone[3] != ':') return std::nullopt;
    auto hours = whole(zone.substr(1, 2)), minutes = whole(zone.substr(4, 2));
    if (!hours || !minutes || *hours < 0 || *minutes < 0) return std::nullopt;
    offset = static_cast<int>(*hours * 60 + *minutes) * (zone[0] == '-' ? -60 : 60);
  }
  std::tm parts{};
  parts.tm_year = year - 1900, parts.tm_mon = month - 1, parts.tm_mday = day;
  parts.tm_hour = hour, parts.tm_min = minute;
  return static_cast<double>(::timegm(&parts)) + second - offset;
}

Result<double> parse_since(std::string_view text, double now) {
  if (auto seconds = decimal(text)) return *seconds;
  if (!text.empty()) {
    static constexpr std::string_view kUnits = "smhd";
    static constexpr double kSeconds[] = {1, 60, 3600, 86400};
    size_t unit = kUnits.find(text.back());
    if (auto number = decimal(text.substr(0, text.size() - 1)); number && unit != std::string_view::npos)
      return *number * kSeconds[unit];
  }
  if (auto time = parse_rfc3339(text)) return std::max(0.0, now - *time);
  return usage(quoted(text) + " is not a time: give an age such as 10m or 2h, or a time such as 2026-11-30T12:00:00Z");
}

Result<double> parse_interval(std::string_view text, std::string_view example) {
  auto seconds = parse_since(text, 0);
  if (seconds && *seconds >= 0.1 && *seconds <= 86400) return *seconds;
  return usage(quoted(text) + " is not an interval: give seconds, such as " + std::string(example));
}

Result<std::string> check_quota(std::string_view text) {
  auto quota = parse_quota(text, 1ull << 40);
  if (!quota) return quota.error();
  return std::string(text);
}

Result<std::string> check_device(std::string_view text) {
  bool index = !text.empty() && text.size() <= 4 && std::all_of(text.begin(), text.end(), is_digit);
  bool uuid = text.size() > 4 && text.size() <= 40 && text.substr(0, 4) == "GPU-" &&
              std::all_of(text.begin() + 4, text.end(), [](char c) { return is_digit(c) || is_letter(c) || c == '-'; });
  if (index || uuid) return std::string(text);
  return usage(quoted(text) + " is not a device: give an index as nvidia-smi counts, or a UUID such as GPU-1234...");
}

Result<std::string> check_job_name(std::string_view text) {
  auto allowed = [](char c) { return is_digit(c) || is_letter(c) || c == '.' || c == '_' || c == '-'; };
  if (!text.empty() && text.size() <= 64 && text[0] != '-' && text[0] != '.' &&
      std::all_of(text.begin(), text.end(), allowed))
    return std::string(text);
  return usage(quoted(text) + " is not a name for a job: give 1 to 64 letters, digits, '.', '_' or '-'");
}

Result<std::string> check_job_reference(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return check_job_name(text);
  if (slash == 0) return usage(quoted(text) + " is not the name of a job: give NAME, or as root USER/NAME");
  auto name = check_job_name(text.substr(slash + 1));
  if (!name) return name.error();
  return std::string(text);
}

Result<std::string> check_priority(std::string_view text) {
  if (text == "high" || text == "normal" || text == "low") return std::string(text);
  return usage(quoted(text) + " is not a priority: give high, normal or low");
}

Result<int> parse_gpus(std::string_view text) {
  auto value = whole(text);
  if (!value || *value < 1 || *value > client::kMaxGpus)
    return usage(quoted(text) + " is not a number of virtual devices: give 1 to " + std::to_string(client::kMaxGpus) +
                 " with -g");
  return static_cast<int>(*value);
}

Result<int> parse_weight(std::string_view text) {
  auto value = whole(text);
  if (!value || *value < 1 || *value > 10000) return usage(quoted(text) + " is not a weight: give a number from 1 to 10000");
  return static_cast<int>(*value);
}

Result<long> parse_wait(std::string_view text) {
  if (text.empty()) return -1;
  auto value = whole(text);
  if (!value || *value < 0 || *value > 1000000000)
    return usage(quoted(text) + " is not a time to wait: give whole seconds, or --wait alone to wait for ever");
  return *value;
}

}  // namespace berth::cli
