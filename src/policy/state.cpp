#include "policy/state.h"

namespace berth::policy {

const char* to_string(Priority priority) {
  switch (priority) {
    case Priority::low:
      return "low";
    case Priority::normal:
      return "normal";
    case Priority::high:
      return "high";
  }
  return "?";
}

const char* to_string(JobState state) {
  switch (state) {
    case JobState::waiting:
      return "waiting";
    case JobState::running:
      return "running";
    case JobState::paused:
      return "paused";
    case JobState::ended:
      return "ended";
  }
  return "?";
}

const char* to_string(ClientState state) {
  switch (state) {
    case ClientState::attached:
      return "attached";
    case ClientState::silent:
      return "silent";
    case ClientState::escaped:
      return "escaped";
    case ClientState::leaving:
      return "leaving";
  }
  return "?";
}

std::optional<Priority> parse_priority(std::string_view text) {
  for (Priority priority : {Priority::low, Priority::normal, Priority::high})
    if (text == to_string(priority)) return priority;
  return std::nullopt;
}

}  // namespace berth::policy
