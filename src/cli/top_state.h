// What `berth top` remembers from one screen to the next, and what its keys do. Plain functions over plain state.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/fields.h"

namespace berth::cli {

enum class TopSort { name, time, memory, waited };
const char* to_string(TopSort sort);

struct TopState {
  TopSort sort = TopSort::name;
  std::string selected;   // as job_reference() names it; "" before there was any job
  size_t place = 0;       // where it stands in the order: whoever comes there when it ends is selected next
  bool all_keys = false;  // the line of keys is the long one
  std::string notice;     // why the daemon refused what the last key asked for
};

// What the daemon said last.
struct TopData {
  std::vector<Json> jobs;     // ordered
  std::vector<Json> devices;  // of `gpus`
  std::string trouble;        // why it says nothing; the rest is then empty
};

// USER/NAME, which the daemon takes from root and from the user alike.
std::string job_reference(const Json& job);

// A job's figures over its devices. Bytes are summed; of times it is the longest. nullopt: unknown, or no quota.
uint64_t job_used_bytes(const Json& job);
std::optional<uint64_t> job_quota_bytes(const Json& job);
std::optional<double> job_seconds(const Json& job, const char* key);

// The jobs of `ps` as they are to be shown: by name, or the one with most time, memory or waiting first.
std::vector<Json> ordered_jobs(const Json& ps, TopSort sort);

// The selected job may have moved or gone.
void keep_selection(const std::vector<Json>& jobs, TopState* state);

// A quarter more or less, at least by 1, within 1 to 10000; lighter() undoes heavier().
int64_t heavier(int64_t weight);
int64_t lighter(int64_t weight);

// What a key leads to: the end, a request to the daemon, or another look at what is there. 'k' and 'j' are up and down.
struct TopStep {
  bool quit = false;
  std::optional<Json> request;
};
TopStep press_key(char key, const std::vector<Json>& jobs, TopState* state);

}  // namespace berth::cli
