// The management library's side of virtual devices (virtual_devices.h is the driver's).
#pragma once
#include "shim/client.h"

namespace berth::shim {

// Between attaching and the moment that this process counts as a client.
void install_virtual_handles(Client& client, const Introduction& introduction);

}  // namespace berth::shim
