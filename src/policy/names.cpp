#include "policy/names.h"

#include <algorithm>

namespace berth::policy {
namespace {

bool good_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

const Job* living(const State& state, uint32_t uid, std::string_view name) {
  for (const auto& [id, job] : state.jobs)
    if (job.uid == uid && job.name == name && job.state != JobState::ended) return &job;
  return nullptr;
}

}  // namespace

std::string default_name(const State& state, uint32_t uid, const std::vector<std::string>& command) {
  std::string base = command.empty() ? "" : command.front();
  base = base.substr(base.rfind('/') + 1).substr(0, kMaxName - 12);
  for (char& c : base)
    if (!good_char(c)) c = '_';
  if (base.empty()) base = "job";
  for (int number = 1;; ++number)
    if (std::string name = base + "-" + std::to_string(number); !living(state, uid, name)) return name;
}

Status check_name(const State& state, uint32_t uid, std::string_view name) {
  if (name.size() > kMaxName || !std::all_of(name.begin(), name.end(), good_char))
    return Error{"usage", "'" + std::string(name.substr(0, 80)) + "' is no name for a job: use up to " +
                              std::to_string(kMaxName) + " letters, digits, '.', '_' and '-'"};
  if (!name.empty() && living(state, uid, name))
    return Error{"name_in_use",
                 "a job named " + std::string(name) + " is there already; give another --name or end it"};
  return Ok{};
}

Result<JobId> find_job(const State& state, uint32_t uid, std::string_view text) {
  size_t slash = text.find('/');
  std::string_view user = slash == std::string_view::npos ? "" : text.substr(0, slash);
  std::string_view name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  const Job* best = nullptr;
  bool several = false, others = false;
  for (const auto& [id, job] : state.jobs) {
    if (job.name != name || (!user.empty() && job.user != user)) continue;
    if (job.uid != uid && uid != 0) {
      others = true;
      continue;
    }
    auto rank = [&](const Job& j) { return (j.state != JobState::ended ? 2 : 0) + (j.uid == uid ? 1 : 0); };
    if (best && rank(job) == rank(*best) && job.uid != best->uid) several = true;
    if (!best || rank(job) >= rank(*best)) {
      several = several && best && rank(job) == rank(*best);
      best = &job;
    }
  }
  if (best && several)
    return Error{"usage", "several users have a job named " + std::string(name) + ": write USER/" + std::string(name)};
  if (best) return best->id;
  if (others) return Error{"not_permitted", "the job " + std::string(text) + " belongs to another user"};
  return Error{"unknown_job",
               "there is no job named '" + std::string(text.substr(0, 80)) + "'; `berth ps -a` shows them all"};
}

}  // namespace berth::policy
