// What a stream, a graph node or a capture can be asked to do, as plain values. A stream turns them into operations at
// once, a graph keeps them and makes operations of them at each launch.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "abi/driver_types.h"

namespace berth::sim {

struct Context;
struct Event;
struct Record;
struct Graph;
struct Pool;
struct Kernel;
struct GraphAddress;
struct GraphMemory;
struct Range;

struct KernelWork {
  CUfunction function;
  const Kernel* kernel;
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  std::vector<std::byte> arguments;  // laid out as the kernel's parameters are
};

// One side of a copy: rows of `width` bytes, `pitch` apart; layers `slice` apart.
struct Side {
  uint64_t address;
  size_t pitch, slice;
  bool device;
};
struct CopyWork {
  Side from, to;
  size_t width, height, depth;
  std::shared_ptr<std::vector<std::byte>> staged;  // the source, where the caller may change it after the call
};

struct FillWork {
  uint64_t address;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
};

struct HostWork {
  CUhostFn function;  // one of the two
  CUstreamCallback callback;
  CUstream stream;
  void* data;
};

struct RecordWork {
  std::shared_ptr<Event> event;
  std::shared_ptr<Record> record;  // null in a graph: each launch makes its own
};
struct WaitWork {
  std::shared_ptr<Event> event;
  std::shared_ptr<Record> record;  // null in a graph: what is recorded when the node runs
};

struct ValueOperation {
  bool write, wide;
  uint64_t address, value;
  unsigned flags;
};
struct ValueWork {
  std::vector<ValueOperation> operations;
};

struct PoolFreeWork {
  Pool* pool;
  uint64_t address, generation;
};
struct GraphAllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  std::shared_ptr<GraphAddress> address;
};
struct GraphFreeWork {
  uint64_t address;
};
struct ManagedWork {  // brings managed memory to the device or back
  uint64_t address;
  bool to_device;
};
struct EmptyWork {};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};

using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, RecordWork, WaitWork, ValueWork, PoolFreeWork,
                          GraphAllocWork, GraphFreeWork, ManagedWork, EmptyWork, ChildWork>;

}  // namespace berth::sim
