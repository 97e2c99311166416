// Long graphs in parts (docs/adr/0006): beside a program's instantiated graph stand instances of its parts, which are launched
// instead while work waits on the device, so that higher work need not wait for the whole. What the program sees and changes is
// its own instance; the parts follow.
//
// Parts are made at the first launch that could use them: the clone kept from the instantiation is divided, so it does not
// matter what has become of the program's graph meanwhile.
//
// Order. The driver lets launches of one instance follow each other, whatever their streams. Parts are other instances, so
// after a launch in parts an event of ours is recorded, which the next launch on another stream waits for. A whole launch is
// only marked so if it was held and launches have been seen on several streams; behind one that is not marked, on another
// stream, the next is whole, too.
#pragma once
#include "abi/driver_types.h"
#include "shim/graph_cuts.h"
#include "shim/guest.h"

namespace berth::shim {

class Client;
class SubmitCall;
struct CallFacts;
struct StreamSlot;
struct Work;

struct SplitNode {
  CUgraphNode original;  // the program's
  CUgraphNode twin;      // ours: in the graph of its part, or in the clone of the whole until there are parts
  uint32_t part;
  bool disabled;
};

class SplitExec {
 public:
  // Null if the graph has to stay whole.
  static SplitExec* make(CUgraphExec exec, CUgraph graph);
  // `context_is_gone`: what the driver had went with it.
  void discard(Client& client, bool context_is_gone);
  bool needs(CUcontext context) const { return context == made_in_ || context == event_context_; }

  CUresult launch(SubmitCall& call, CUresult (*real)(CUgraphExec, CUstream), CUstream stream);

  // The driver has changed a node of the program's instance: so on_exec(part, SplitNode&) does, or on_graph(SplitNode&) before
  // there are parts. If they can't, the graph stays whole.
  template <class OnExec, class OnGraph>
  void change(Client& client, CUgraphNode original, OnExec on_exec, OnGraph on_graph) {
    Locked order(order_);
    SplitNode* node = find(original);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (node && state_ == State::parts) result = on_exec(parts_[node->part].exec, *node);
    else if (node && state_ == State::clone) result = on_graph(*node);
    if (result != CUDA_SUCCESS) drop(client);
  }
  // The driver has changed it in another way.
  void stay_whole(Client& client) {
    Locked order(order_);
    drop(client);
  }

 private:
  static constexpr uint32_t kMostNodes = 1 << 16, kMostEdges = 1 << 20, kMostParts = 64;
  enum class State : uint32_t { clone, parts, whole };
  enum class Last : uint32_t { none, whole, parts };
  struct Part {
    CUgraphExec exec;
    CUgraph graph;  // its nodes are the names by which the exec's are changed
    uint32_t stop;  // the first place that is no more in it
  };
  struct Launch {
    const CallFacts& facts;
    CUresult (*real)(CUgraphExec, CUstream);
    CUstream stream;
    uint64_t stream_id;
    bool known;      // `stream_id` is
    bool elsewhere;  // the last launch may have been on another stream
  };

  // split_making.cpp
  bool read(CUgraph graph, size_t edge_count);
  bool is_plain(CUgraphNode node);
  bool clone(CUgraph graph);
  bool make_parts(uint32_t wanted, CUstream stream);
  bool divide(CUgraph graph, uint32_t from, uint32_t to);
  bool instantiate(uint32_t part);
  uint32_t number_of(CUgraphNode original) const;
  SplitNode* find(CUgraphNode original);
  void drop_graphs();

  void drop(Client& client);
  bool can_use_parts(SubmitCall& call, const Launch& launch);
  bool has_parts(SubmitCall& call, const Launch& launch);
  bool count_parts(Client& client, uint32_t parts);
  bool has_event(const StreamSlot& slot);
  CUresult launch_whole(SubmitCall& call, const Launch& launch);
  CUresult launch_parts(SubmitCall& call, const Launch& launch);
  void note(const Launch& launch, Last last, bool mark);
  Work work_of_part(uint32_t part, CUstream stream) const;

  size_t bytes_;  // of the pages that this and the lists below are in
  CUgraphExec exec_;
  CUcontext made_in_;
  uint64_t flags_;
  uint32_t node_count_, slots_;  // a power of two
  SplitNode* nodes_;             // by number
  uint32_t* places_;             // the numbers in an order that keeps all edges
  uint32_t* numbers_;            // a hash table by original: number + 1
  uint8_t* ends_;                // by place

  GuestLock order_;  // what follows; held over calls of the driver: launches and changes of one instance must not overlap
  State state_;
  CUgraph clone_;
  uint32_t part_count_, parts_counted_;  // parts_counted_: in Client::split_parts
  Part parts_[kMostParts];
  CUevent event_;
  CUcontext event_context_;
  Last last_;
  uint64_t last_stream_id_;
  bool last_is_known_, marked_, roams_;
};

// A graph has been instantiated.
void graph_instantiated(Client& client, CUgraphExec exec, CUgraph graph);
// Null: it stays whole. A process without any pays a look at a flag.
SplitExec* split_of(Client& client, CUgraphExec exec);
// Takes it out of the list of the process.
SplitExec* take_split(Client& client, CUgraphExec exec);
void put_split(Client& client, CUgraphExec exec, SplitExec* split);
void forget_splits(Client& client, CUcontext context);

}  // namespace berth::shim
