// The UUIDs of virtual devices: random ones (RFC 4122, version 4), given when a job is placed and kept with it in the
// store. So no two jobs ever share one, and programs of a job see the same before and after a restart of the daemon.
#pragma once
#include "policy/state.h"

namespace berth::daemon {

// Gives those a UUID that have none.
void name_virtual_devices(policy::Job& job);

}  // namespace berth::daemon
