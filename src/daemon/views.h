// What the daemon shows, as JSON (docs/json.md).
#pragma once
#include "daemon/store.h"
#include "policy/state.h"

namespace berth::daemon {

class Daemon;

Json job_json(const Daemon& daemon, const policy::Job& job);
// What they are; ps_json() adds what they hold.
Json virtual_devices_json(const policy::State& state, const policy::Job& job);
Json ps_json(const Daemon& daemon, bool ended_too);
Json gpus_json(const Daemon& daemon);
Json status_json(const Daemon& daemon);

}  // namespace berth::daemon
