#include "shim/pools.h"

#include "shim/driver.h"
#include "shim/footprint.h"

namespace berth::shim {
namespace {

// Brings the account from what it was, and `credit` that was just granted for it, to `now`. What the driver has taken
// already cannot be refused.
void set_account(Client& client, uint64_t key, wire::Kind kind, uint32_t device, uint64_t now, uint64_t credit = 0) {
  uint64_t before = credit;
  bool known = client.table.update(Space::pool, key, [&](Allocation& a) {
    before += a.bytes;
    a.bytes = now;
  });
  if (!known) {
    Allocation pool;
    pool.space = Space::pool;
    pool.key = key;
    pool.kind = kind;
    pool.device = static_cast<uint8_t>(device);
    pool.bytes = now;
    client.table.insert(pool);
  }
  uint64_t granted;
  if (now > before) client.reserve(device, kind, now - before, wire::Force::taken, &granted);
  else if (now < before) client.release(device, kind, before - now);
}

uint64_t graph_key(uint32_t device) { return 0x67726170680000ull + device; }

// Runs visit(pool, device) for each pool that this process has used. The driver is asked without our lock.
template <class Visit>
void for_each_pool(Client& client, Visit visit) {
  constexpr int kMost = 64;
  struct { CUmemoryPool pool; uint32_t device; } pools[kMost];
  int count = 0;
  client.table.for_each([&](const Allocation& a) {
    if (a.space == Space::pool && a.kind == wire::Kind::pool && count < kMost)
      pools[count++] = {reinterpret_cast<CUmemoryPool>(a.key), a.device};
  });
  for (int i = 0; i < count; ++i) visit(pools[i].pool, pools[i].device);
}

}  // namespace

uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute which) {
  CaptureSafe safe;
  uint64_t value = 0;
  return real::cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS ? value : kNoAnswer;
}

void settle_pool(Client& client, CUmemoryPool pool, uint32_t device, uint64_t credit) {
  uint64_t reserved = pool_attribute(pool, abi::kMemPoolAttrReservedCurrent);
  if (reserved == kNoAnswer) {
    client.release(device, wire::Kind::pool, credit);
    return;
  }
  set_account(client, reinterpret_cast<uint64_t>(pool), wire::Kind::pool, device, reserved, credit);
}

void settle_all_pools(Client& client) {
  if (!client.has_pools.load(std::memory_order_relaxed)) return;
  for_each_pool(client, [&](CUmemoryPool pool, uint32_t device) { settle_pool(client, pool, device, 0); });
}

bool give_back_idle_pool_memory(Client& client, uint32_t device) {
  if (!client.has_pools.load(std::memory_order_relaxed)) return false;
  if (berth_fork_page->captures.load(std::memory_order_relaxed)) return false;
  bool any = false;
  for_each_pool(client, [&](CUmemoryPool pool, uint32_t owner) {
    if (owner != device) return;
    uint64_t before = pool_attribute(pool, abi::kMemPoolAttrReservedCurrent);
    real::cuMemPoolTrimTo(pool, 0);
    any |= pool_attribute(pool, abi::kMemPoolAttrReservedCurrent) < before;
    settle_pool(client, pool, owner, 0);
  });
  return any;
}

void settle_graph_memory(Client& client, uint32_t device, uint64_t credit) {
  uint64_t reserved = 0, bounds = 0;
  CaptureSafe safe;
  real::cuDeviceGetGraphMemAttribute(static_cast<CUdevice>(device), abi::kGraphMemAttrReservedCurrent, &reserved);
  client.table.for_each([&](const Allocation& a) {
    if (a.space == Space::graph_exec && a.device == device && a.link == 0) bounds += a.references * kPoolStepBytes;
  });
  set_account(client, graph_key(device), wire::Kind::graph, device, reserved + bounds, credit);
}

void settle_all_graph_memory(Client& client) {
  if (!client.has_graph_memory.load(std::memory_order_relaxed)) return;
  uint32_t devices = 0;  // those with a graph account, as bits
  client.table.for_each([&](const Allocation& a) {
    if (a.space == Space::pool && a.kind == wire::Kind::graph) devices |= 1u << a.device;
  });
  for (uint32_t device = 0; device < wire::kMaxDevices; ++device)
    if (devices >> device & 1) settle_graph_memory(client, device, 0);
}

}  // namespace berth::shim
