// The daemon's settings: command line, environment, TOML file, in this order. Everything that berthd reads of its
// surroundings when it starts is read here.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/admission.h"

namespace berth::daemon {

// A [limits.*] table; what it doesn't say is decided elsewhere.
struct LimitRow {
  std::optional<std::string> max_memory;
  std::optional<uint32_t> max_jobs;
  std::optional<policy::Priority> max_priority;
  std::optional<uint32_t> max_weight;
};

struct SchedulerConfig {
  policy::Time latency_target = std::chrono::microseconds(200);  // window of work below a job of higher priority
  policy::Time quantum = std::chrono::milliseconds(20);
  policy::Time starvation = std::chrono::seconds(10);
  bool split_graphs = false;  // long graphs of jobs below high priority are launched in parts while their work is held
};

// Compute modes of devices: of all, and of those that have a table of their own, by index or UUID in the file's words.
struct DeviceModes {
  policy::ComputeMode all = policy::ComputeMode::shared;
  std::vector<std::pair<std::string, policy::ComputeMode>> own;  // the last that fits a device decides: UUIDs after indices
};

struct Config {
  std::string file;  // "" = none
  std::optional<std::string> socket;
  std::optional<uint64_t> headroom;
  LimitRow default_limits;
  std::map<std::string, LimitRow> user_limits, group_limits;
  size_t keep_events = 1000;
  SchedulerConfig scheduler;
  DeviceModes modes;
};

// An unknown key, or a value that is none, is an error with file and line.
Result<Config> read_config(const std::string& file);

// The user's own row, else the most generous of the user's groups, else the default; key by key. Without any word about
// it, nobody but root gets a high priority from a system daemon.
policy::Limits limits_of(const Config& config, const std::string& user, const std::vector<std::string>& groups,
                         bool system, bool is_root);

struct Settings {
  std::string socket;
  std::string state_file;
  std::string driver;        // BERTH_DRIVER
  bool system = false;       // serves all users of the machine
  double idle_seconds = 60;  // a per-user daemon ends so long after its last job; 0 = never
  Config config;
};

}  // namespace berth::daemon
