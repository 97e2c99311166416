// What clients may hold: grants, releases, what they bring back after a restart, their death, and the check with NVML.
// In a job with virtual devices their programs know these only, so a place names one. Figures from clients are hostile:
// every one is clamped to what the account can bear.
#pragma once
#include "policy/state.h"

namespace berth::policy {

// Adds a client of a job. `job` must exist.
Client& add_client(State& state, JobId job, ProcessId process, bool viewer, Time now);

// first_context: may pass the quota if the job has no other overhead there, on that virtual device if it has such (a
// small quota must still start). taken: the driver has taken it already; granted as far as it is not promised to
// others, and NVML shows the rest.
enum class Force { none, first_context, taken };

struct Ask {
  Kind kind = Kind::linear;
  uint64_t bytes = 0;  // for Kind::overhead 0 means one context, at its learned cost
  Force force = Force::none;
};
enum class Verdict { granted, over_quota, device_full, unavailable };  // unavailable: by the compute mode, contexts only
struct Answer {
  Verdict verdict = Verdict::granted;
  uint64_t bytes = 0;      // added to the account; 0 unless granted
  uint64_t asked = 0;      // with the context's cost filled in
  uint64_t available = 0;  // what could still have been granted (after a grant: what still can be)
  uint64_t leaving = 0;    // of dead clients: would be available a little later
  bool soon = false;       // unavailable only until the dead have let go
  std::string why;         // unavailable: who has the device, for people
};
Answer reserve(State& state, ClientId client, Place place, const Ask& ask, Time now);

// Returns the bytes really released.
uint64_t release(State& state, ClientId client, Place place, Kind kind, uint64_t bytes, Time now);

// A client that attaches again, or for the first time after a restart of the daemon: what it reports replaces its
// account. The next reading of NVML adds what it left out.
void begin_holdings(State& state, ClientId client);
void add_holding(State& state, ClientId client, Place place, Kind kind, uint64_t bytes, Time now);

// The client closed its connection and lives: nothing changes but its state. Or it attached again.
void set_silent(State& state, ClientId client, Time now);
void set_attached(State& state, ClientId client, Time now);

// The process has ended. What it held is leaving until NVML no longer lists it; a client without bytes is gone at once.
void client_died(State& state, ClientId client, Time now);

bool anything_leaving(const State& state);

}  // namespace berth::policy
