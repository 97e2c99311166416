// What outlives the daemon: jobs, the processes known as their clients, events. One SQLite file beside the socket, held
// exclusively. Opened by the loop thread before it runs; all later calls come from one worker thread.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"

struct sqlite3;

namespace berth::daemon {

using Json = nlohmann::json;

struct StoredClient {
  ProcessId process;
  uint64_t job = 0;
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  ~Store();

  // Makes the file if there is none. What it holds of an earlier boot of the machine is dropped, events excepted.
  Status open(const std::string& file, const std::string& boot);

  // A job as JSON with "id"; replaces the one of that id. On disk when it returns.
  Status save_job(uint64_t id, const Json& job);
  Status remove_job(uint64_t id);
  Result<std::vector<Json>> load_jobs();

  Status save_client(const StoredClient& client);
  Status remove_client(ProcessId process);
  Result<std::vector<StoredClient>> load_clients();

  // An event with "id"; the oldest go when there are more than `keep`.
  Status append_event(uint64_t id, const Json& event, size_t keep);
  Result<std::vector<Json>> load_events(size_t keep);

 private:
  template <class... Values>
  Status run(const char* sql, const Values&... values);
  Result<std::vector<Json>> load(const char* sql, int64_t limit);
  Error failed() const;

  sqlite3* db_ = nullptr;
  std::string file_;
};

}  // namespace berth::daemon
