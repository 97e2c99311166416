// Names of jobs: unique among a user's living jobs.
#pragma once
#include "base/result.h"
#include "policy/state.h"

namespace berth::policy {

inline constexpr size_t kMaxName = 64;

// COMMAND-1, -2 ...: the first that none of the user's living jobs has.
std::string default_name(const State& state, uint32_t uid, const std::vector<std::string>& command);

// "" is fine: the default will be taken. Otherwise usage or name_in_use.
Status check_name(const State& state, uint32_t uid, std::string_view name);

// The job a person means: own jobs by NAME, the living one before ended ones; root also others' by USER/NAME, and by
// NAME where it is the only one. Error unknown_job or not_permitted.
Result<JobId> find_job(const State& state, uint32_t uid, std::string_view text);

}  // namespace berth::policy
