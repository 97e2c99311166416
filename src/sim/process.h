// What one process has on the simulated cards: devices, contexts, memory, streams. Plain state under one mutex; objects
// live for ever once made where the driver's users keep using stale handles (contexts), else as long as somebody holds
// them.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/engine.h"
#include "sim/heap.h"
#include "sim/physical.h"

namespace berth::sim {

using Lock = std::unique_lock<std::mutex>;

struct Capture;
struct GraphNode;
struct Pool;

struct Stream {
  Context* context = nullptr;
  bool legacy = false, blocking = true, destroyed = false;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  std::deque<std::unique_ptr<Operation>> queue;
  TicketRef tail;
  Lane lane;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> capture_after;  // what the next captured node comes after
  unsigned char attributes[4][64] = {};
};
using StreamRef = std::shared_ptr<Stream>;

struct Context {
  struct Device* device = nullptr;
  bool primary = false, alive = false, closing = false;
  unsigned flags = 0, api_version = 3020;
  int uses = 0;  // retains of a primary context, attachments of others
  uint64_t id = 0;
  CUresult error = CUDA_SUCCESS;  // sticky
  int cache_config = 0;
  size_t limits[16] = {};
  PhysicalRef memory, graph_memory;
  std::vector<PhysicalRef> stack_memory;
  SmallHeap heap;
  StreamRef legacy;
  std::vector<StreamRef> streams;  // all but the legacy one
  std::vector<Context*> peers;
};

struct Device {
  int ordinal = 0, card = 0;
  Context* primary = nullptr;
  unsigned primary_flags = 0;
  int contexts = 0;  // alive
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
  std::shared_ptr<GraphMemory> graph_memory;
  // Memory of cuMemAlloc that cuMemFreeAsync was asked to free: goes at a synchronisation after the ticket (recorded).
  std::vector<std::pair<TicketRef, uint64_t>> freed_later;
};

enum class RangeKind { device, small, managed, host, registered, mapped, pool, graph, imported };

// A piece of memory that the device may use.
struct Range {
  uint64_t start = 0, bytes = 0;
  RangeKind kind = RangeKind::device;
  Context* context = nullptr;
  Device* device = nullptr;  // null: host memory
  PhysicalRef physical;
  uint64_t offset = 0;  // within the physical memory
  uint64_t view = 0;    // start of the mapping, where it is another address
  unsigned flags = 0;   // of host memory; the number of handles open of an imported one
  uint64_t id = 0;
  Pool* pool = nullptr;
  int access = 3;  // of a mapping
  bool sync_operations = false;
};

template <class T>
class Registry {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<T> object) {
    T* raw = object.get();
    live_[raw] = std::move(object);
    return reinterpret_cast<Handle>(raw);
  }
  template <class Handle>
  std::shared_ptr<T> find(Handle handle) const {
    auto at = live_.find(reinterpret_cast<const void*>(handle));
    return at == live_.end() ? nullptr : at->second;
  }
  template <class Handle>
  bool remove(Handle handle) {
    return live_.erase(reinterpret_cast<const void*>(handle)) > 0;
  }
  const auto& all() const { return live_; }
  template <class Gone>
  void remove_if(Gone gone) {
    std::erase_if(live_, [&](const auto& each) { return gone(*each.second); });
  }

 private:
  std::unordered_map<const void*, std::shared_ptr<T>> live_;
};

struct Process {
  std::mutex mutex;
  std::condition_variable done;  // an operation is complete
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Context>> contexts;  // never removed
  std::map<uint64_t, Range> ranges;                // by start
  Registry<Stream> streams;
  std::vector<StreamRef> busy;  // streams with operations; the engine's round
  uint64_t next_id = 1;
};

// Never destroyed: threads of the driver outlive main().
Process& process();

// The range that holds the address, or null.
Range* find_range(uint64_t address);
// True if the device may use all of it: device, managed, mapped with access, or page-locked host memory.
bool device_may_use(uint64_t address, uint64_t bytes);

// Waits, with the lock released meanwhile. The context's sticky error, if it has one by then.
CUresult wait_for(Lock& lock, Context& context, const TicketRef& ticket);
CUresult wait_for_context(Lock& lock, Context& context);
TicketRef legacy_barrier(Context& context);

inline constexpr size_t kLimits = 16;

}  // namespace berth::sim
