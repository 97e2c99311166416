// Memory of graphs' allocation nodes. A node's address is fixed when the node is made; memory comes to it at upload or
// launch, from a stock that each device keeps for graphs: it grows in steps of 32 MiB and shrinks by
// cuDeviceGraphMemTrim alone (recorded: a node of 48 MiB reserves 64 MiB, which stay when the graph is gone).
#pragma once
#include <memory>

#include "sim/process.h"

namespace berth::sim {

struct GraphAddress {
  uint64_t start, bytes;                 // bytes as asked for
  explicit GraphAddress(uint64_t size);  // start is 0 when there are no more addresses
  ~GraphAddress();
};

struct GraphMemory {
  int card = 0;
  uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;

  // For one launch: memory to all of them, or none. `again`: they may be in use by an earlier launch of the same graph.
  CUresult begin(const std::vector<std::shared_ptr<GraphAddress>>& addresses, Context& context, Device& device,
                 bool free_first);
  // The launch is complete: what its nodes have freed goes to the stock.
  void end(const std::vector<std::shared_ptr<GraphAddress>>& addresses);
  // An allocation node or a free (a node, cuMemFree, cuMemFreeAsync) is executed.
  void allocated(uint64_t address);
  void free(uint64_t address);
  void forget(uint64_t address);  // the range has gone already
  // Upload: the stock has at least this much.
  bool prepare(uint64_t bytes);
  void trim();

 private:
  struct Live {
    std::shared_ptr<GraphAddress> address;
    Runs runs;
    int launches = 0;
    bool freed = false;
  };
  bool grow(uint32_t pages);
  void release(uint64_t address);
  std::map<uint64_t, Live> live_;
  Runs stock_;
  uint32_t stock_pages_ = 0;
};

}  // namespace berth::sim
