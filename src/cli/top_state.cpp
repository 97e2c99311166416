#include "cli/top_state.h"

#include <algorithm>

namespace berth::cli {
namespace {

constexpr int64_t kMaxWeight = 10000;

double sort_key(const Json& job, TopSort sort) {
  switch (sort) {
    case TopSort::time:
      return number(job, "gpu_share_ratio").value_or(-1);
    case TopSort::memory:
      return static_cast<double>(job_used_bytes(job));
    case TopSort::waited:
      return job_seconds(job, "waited_seconds").value_or(-1);
    case TopSort::name:
      break;
  }
  return 0;
}

const char* next_priority(const std::string& priority) {
  if (priority == "low") return "normal";
  return priority == "normal" ? "high" : "low";
}

std::optional<Json> change_of(char key, const Json& job) {
  const std::string name = job_reference(job);
  if (key == 'p') return Json{{"op", field(job, "state") == "paused" ? "resume" : "pause"}, {"name", name}};
  if (key == 'P') return Json{{"op", "set"}, {"name", name}, {"priority", next_priority(text_cell(job, "priority"))}};
  const Json& weight = field(job, "weight");
  if ((key != '+' && key != '-') || !weight.is_number_integer()) return std::nullopt;
  int64_t before = weight.get<int64_t>(), after = key == '+' ? heavier(before) : lighter(before);
  if (after == before) return std::nullopt;
  return Json{{"op", "set"}, {"name", name}, {"weight", after}};
}

}  // namespace

const char* to_string(TopSort sort) {
  static constexpr const char* kNames[] = {"name", "time", "memory", "waited"};
  return kNames[static_cast<size_t>(sort)];
}

std::string job_reference(const Json& job) { return text_cell(job, "user") + "/" + text_cell(job, "name"); }

uint64_t job_used_bytes(const Json& job) { return sum_of(list(job, "devices"), "used_bytes"); }

std::optional<uint64_t> job_quota_bytes(const Json& job) {
  std::optional<uint64_t> sum;
  for (const Json& device : list(job, "devices")) {
    auto quota = size_of(device, "quota_bytes");
    if (!quota) return std::nullopt;
    sum = sum.value_or(0) + *quota;
  }
  return sum;
}

std::optional<double> job_seconds(const Json& job, const char* key) {
  std::optional<double> longest;
  for (const Json& device : list(job, "devices"))
    if (auto seconds = number(device, key)) longest = std::max(longest.value_or(0), *seconds);
  return longest;
}

std::vector<Json> ordered_jobs(const Json& ps, TopSort sort) {
  std::vector<Json> jobs(list(ps, "jobs").begin(), list(ps, "jobs").end());
  std::sort(jobs.begin(), jobs.end(), [sort](const Json& a, const Json& b) {
    double first = sort_key(a, sort), second = sort_key(b, sort);
    if (first != second) return first > second;
    std::string name = text_cell(a, "name"), other = text_cell(b, "name");
    return name != other ? name < other : job_reference(a) < job_reference(b);
  });
  return jobs;
}

void keep_selection(const std::vector<Json>& jobs, TopState* state) {
  if (jobs.empty()) return;  // it may come back with the daemon
  auto found =
      std::find_if(jobs.begin(), jobs.end(), [&](const Json& job) { return job_reference(job) == state->selected; });
  state->place =
      found != jobs.end() ? static_cast<size_t>(found - jobs.begin()) : std::min(state->place, jobs.size() - 1);
  state->selected = job_reference(jobs[state->place]);
}

int64_t heavier(int64_t weight) { return std::min(kMaxWeight, std::max(weight + 1, (weight * 5 + 2) / 4)); }

int64_t lighter(int64_t weight) { return std::max<int64_t>(1, std::min(weight - 1, (weight * 8 + 5) / 10)); }

TopStep press_key(char key, const std::vector<Json>& jobs, TopState* state) {
  state->notice.clear();
  switch (key) {
    case 'q':
      return {true, {}};
    case '?':
      state->all_keys = !state->all_keys;
      return {};
    case 's':
      state->sort = static_cast<TopSort>((static_cast<int>(state->sort) + 1) % 4);
      return {};
    default:
      break;
  }
  if (state->place >= jobs.size()) return {};
  if (key == 'j' || key == 'k') {
    if (key == 'j' && state->place + 1 < jobs.size()) ++state->place;
    if (key == 'k' && state->place > 0) --state->place;
    state->selected = job_reference(jobs[state->place]);
    return {};
  }
  return {false, change_of(key, jobs[state->place])};
}

}  // namespace berth::cli
