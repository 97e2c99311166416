// Stream-ordered pools and graph memory: what they have reserved from the driver is what counts, not what the program uses.
#pragma once
#include "abi/driver_types.h"
#include "shim/client.h"

namespace berth::shim {

// An attribute of a pool, asked so that no capture breaks; kNoAnswer if the driver has none to give.
inline constexpr uint64_t kNoAnswer = ~0ull;
uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute which);

// Brings the account of one pool, or of all this process has used, to what the driver says now. No synchronisation.
// `credit`: bytes of kind pool (or graph) just granted towards it.
void settle_pool(Client& client, CUmemoryPool pool, uint32_t device, uint64_t credit);
void settle_all_pools(Client& client);

// Asks the pools of the device for their idle memory (never during a capture) and settles. True if any came.
bool give_back_idle_pool_memory(Client& client, uint32_t device);

// Graph memory of a device: what launched graphs have reserved, and the bounds of those not launched yet.
void settle_graph_memory(Client& client, uint32_t device, uint64_t credit);
void settle_all_graph_memory(Client& client);

}  // namespace berth::shim
