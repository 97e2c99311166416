#include "daemon/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

// toml++ asserts at some places what a malformed file ("[[[") doesn't keep to, though it looks once more and reports it just
// behind. With NDEBUG it even lets the compiler assume it. So neither.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "base/size.h"
#include "policy/compute_mode.h"

namespace berth::daemon {
namespace {

Error at(const std::string& file, const toml::source_region& where, const std::string& what) {
  return {"usage", file + ":" + std::to_string(where.begin.line) + ": " + what};
}

std::string known_keys(std::initializer_list<const char*> keys) {
  std::string text;
  for (const char* key : keys) text += (text.empty() ? "" : ", ") + std::string(key);
  return text;
}

Status only(const std::string& file, const toml::table& table, const std::string& name,
            std::initializer_list<const char*> keys) {
  for (const auto& entry : table) {
    const toml::key& key = entry.first;
    auto is = [&](const char* known) { return key.str() == known; };
    if (std::none_of(keys.begin(), keys.end(), is))
      return at(file, key.source(),
                "unknown key '" + std::string(key.str()) + "' in " + name + "; known are " + known_keys(keys));
  }
  return Ok{};
}

// Texts, and plain numbers where a size is meant.
std::optional<std::string> size_text(const toml::node& node) {
  if (auto text = node.value_exact<std::string>()) return *text;
  if (auto number = node.value_exact<int64_t>(); number && *number >= 0) return std::to_string(*number);
  return std::nullopt;
}

std::optional<uint32_t> whole_number(const toml::node& node, int64_t least, int64_t most) {
  auto number = node.value_exact<int64_t>();
  if (!number || *number < least || *number > most) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

Result<LimitRow> read_limits(const std::string& file, const toml::node& node, const std::string& name) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), name + " must be a table");
  if (auto status = only(file, *table, name, {"max_memory", "max_jobs", "max_priority", "max_weight"}); !status)
    return status.error();
  LimitRow row;
  for (const auto& [key, value] : *table) {
    bool good = true;
    if (key.str() == "max_memory") {
      row.max_memory = size_text(value);
      good = row.max_memory && parse_quota(*row.max_memory, 1ull << 40).ok();
    } else if (key.str() == "max_jobs") {
      good = (row.max_jobs = whole_number(value, 0, 1000000)).has_value();
    } else if (key.str() == "max_priority") {
      row.max_priority = policy::parse_priority(value.value_or<std::string>(""));
      good = row.max_priority.has_value();
    } else {
      good = (row.max_weight = whole_number(value, 1, 10000)).has_value();
    }
    if (!good)
      return at(file, value.source(),
                "the value of " + name + "." + std::string(key.str()) +
                    " does not fit: max_memory is a size such as \"8G\" or \"40%\", max_jobs a number, "
                    "max_priority high, normal or low, max_weight 1 to 10000");
  }
  return row;
}

Status read_named_limits(const std::string& file, const toml::node& node, const std::string& name,
                         std::map<std::string, LimitRow>* rows) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), name + " must be a table of tables, such as [" + name + ".alice]");
  for (const auto& [key, value] : *table) {
    auto row = read_limits(file, value, name + "." + std::string(key.str()));
    if (!row) return row.error();
    rows->emplace(key.str(), *row);
  }
  return Ok{};
}

Status read_all_limits(const std::string& file, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), "limits must be a table");
  if (auto status = only(file, *table, "limits", {"default", "user", "group"}); !status) return status;
  for (const auto& [key, value] : *table) {
    if (key.str() == "default") {
      auto row = read_limits(file, value, "limits.default");
      if (!row) return row.error();
      config->default_limits = *row;
    } else {
      auto* rows = key.str() == "user" ? &config->user_limits : &config->group_limits;
      if (auto status = read_named_limits(file, value, "limits." + std::string(key.str()), rows); !status)
        return status;
    }
  }
  return Ok{};
}

Status read_daemon(const std::string& file, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), "daemon must be a table");
  if (auto status = only(file, *table, "daemon", {"socket", "headroom"}); !status) return status;
  if (const toml::node* socket = table->get("socket")) {
    config->socket = socket->value_exact<std::string>();
    if (!config->socket || config->socket->empty() || config->socket->front() != '/')
      return at(file, socket->source(), "daemon.socket must be an absolute path");
  }
  if (const toml::node* headroom = table->get("headroom")) {
    auto text = size_text(*headroom);
    auto size = text ? parse_size(*text) : Result<uint64_t>(Error{});
    if (!size) return at(file, headroom->source(), "daemon.headroom must be a size such as \"1G\"");
    config->headroom = *size;
  }
  return Ok{};
}

Status read_events(const std::string& file, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), "events must be a table");
  if (auto status = only(file, *table, "events", {"keep"}); !status) return status;
  if (const toml::node* keep = table->get("keep")) {
    auto number = whole_number(*keep, 1, 1000000);
    if (!number) return at(file, keep->source(), "events.keep must be a number from 1 to 1000000");
    config->keep_events = *number;
  }
  return Ok{};
}

Result<policy::ComputeMode> read_mode(const std::string& file, const toml::node& node, const std::string& name) {
  auto mode = policy::parse_compute_mode(node.value_or<std::string>(""));
  if (!mode) return at(file, node.source(), name + ".compute_mode must be \"default\", \"exclusive\" or \"prohibited\"");
  return *mode;
}

bool names_device(std::string_view key) {
  bool index = !key.empty() && key.size() < 5 && key.find_first_not_of("0123456789") == std::string_view::npos;
  return index || (key.starts_with("GPU-") && key.size() > 4);
}

Status read_device(const std::string& file, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), "device must be a table");
  for (const auto& [key, value] : *table) {
    std::string name = "device.\"" + std::string(key.str()) + "\"";
    bool own = names_device(key.str());
    const toml::node* mode = own && value.is_table() ? value.as_table()->get("compute_mode") : &value;
    if (!own && key.str() != "compute_mode")
      return at(file, key.source(), "unknown key '" + std::string(key.str()) +
                                        "' in device; known are compute_mode, and tables of single devices such as "
                                        "[device.\"0\"] or [device.\"GPU-5d4e1d2c-...\"]");
    if (own && !value.is_table()) return at(file, value.source(), name + " must be a table");
    if (own)
      if (auto status = only(file, *value.as_table(), name, {"compute_mode"}); !status) return status;
    if (!mode) continue;
    auto read = read_mode(file, *mode, own ? name : "device");
    if (!read) return read.error();
    if (own)
      config->modes.own.emplace_back(key.str(), *read);
    else
      config->modes.all = *read;
  }
  std::stable_partition(config->modes.own.begin(), config->modes.own.end(),
                        [](const auto& entry) { return !entry.first.starts_with("GPU-"); });
  return Ok{};
}

Status read_scheduler(const std::string& file, const toml::node& node, Config* config) {
  const toml::table* table = node.as_table();
  if (!table) return at(file, node.source(), "scheduler must be a table");
  if (auto status = only(file, *table, "scheduler", {"latency_target_us", "quantum_ms", "starvation_s", "split_graphs"});
      !status)
    return status;
  struct Key {
    const char* name;
    int64_t least, most;
    policy::Time unit;
    policy::Time SchedulerConfig::* member;
  };
  for (const Key& key : {Key{"latency_target_us", 20, 100000, std::chrono::microseconds(1), &SchedulerConfig::latency_target},
                         Key{"quantum_ms", 4, 1000, std::chrono::milliseconds(1), &SchedulerConfig::quantum},
                         Key{"starvation_s", 1, 3600, std::chrono::seconds(1), &SchedulerConfig::starvation}}) {
    const toml::node* value = table->get(key.name);
    if (!value) continue;
    auto number = whole_number(*value, key.least, key.most);
    if (!number)
      return at(file, value->source(), std::string("scheduler.") + key.name + " must be a whole number from " +
                                           std::to_string(key.least) + " to " + std::to_string(key.most));
    config->scheduler.*key.member = *number * key.unit;
  }
  if (const toml::node* split = table->get("split_graphs")) {
    auto value = split->value_exact<bool>();
    if (!value) return at(file, split->source(), "scheduler.split_graphs must be true or false");
    config->scheduler.split_graphs = *value;
  }
  return Ok{};
}

}  // namespace

Result<Config> read_config(const std::string& file) {
  auto parsed = toml::parse_file(file);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    if (error.source().begin.line == 0) {
      bool readable = ::access(file.c_str(), R_OK) == 0;
      return Error{"usage", "cannot read the configuration " + file + ": " +
                                (readable ? std::string(error.description()) : std::strerror(errno))};
    }
    return at(file, error.source(), std::string(error.description()));
  }
  const toml::table& table = parsed.table();
  Config config;
  config.file = file;
  if (auto status = only(file, table, "the file", {"daemon", "device", "limits", "events", "scheduler"}); !status) return status.error();
  using Reader = Status (*)(const std::string&, const toml::node&, Config*);
  for (auto [key, reader] :
       {std::pair<const char*, Reader>{"daemon", read_daemon},
        {"device", read_device},
        {"limits", read_all_limits},
        {"events", read_events},
        {"scheduler", read_scheduler}})
    if (const toml::node* node = table.get(key))
      if (auto status = reader(file, *node, &config); !status) return status.error();
  return config;
}

policy::Limits limits_of(const Config& config, const std::string& user, const std::vector<std::string>& groups,
                         bool system, bool is_root) {
  std::vector<const LimitRow*> own, shared;
  if (auto it = config.user_limits.find(user); it != config.user_limits.end()) own.push_back(&it->second);
  for (const std::string& group : groups)
    if (auto it = config.group_limits.find(group); it != config.group_limits.end()) shared.push_back(&it->second);
  // The first level that says anything about a key decides; within it the greatest value does.
  auto pick = [&](auto member, auto greater) {
    auto value = config.default_limits.*member;
    for (const auto* level : {&shared, &own}) {
      decltype(value) best;
      for (const LimitRow* row : *level)
        if (row->*member && (!best || greater(*(row->*member), *best))) best = row->*member;
      if (best) value = best;
    }
    return value;
  };
  auto more = [](const auto& a, const auto& b) { return a > b; };
  auto more_memory = [](const std::string& a, const std::string& b) {
    auto bytes = [](const std::string& text) {
      return parse_quota(text, 1ull << 40)->value_or(~0ull);
    };  // none: no limit
    return bytes(a) > bytes(b);
  };
  policy::Limits limits;
  limits.max_memory = pick(&LimitRow::max_memory, more_memory).value_or("");
  limits.max_jobs = pick(&LimitRow::max_jobs, more);
  limits.max_priority = pick(&LimitRow::max_priority, more)
                            .value_or(system && !is_root ? policy::Priority::normal : policy::Priority::high);
  limits.max_weight = pick(&LimitRow::max_weight, more).value_or(10000);
  return limits;
}

}  // namespace berth::daemon
