// What a split graph is made of: where it can be cut, read when the program instantiates it, and its parts, made when a launch
// can use them.
#include <new>

#include "shim/driver.h"
#include "shim/split_exec.h"

namespace berth::shim {
namespace {

constexpr uint64_t kHarmlessFlags = abi::kGraphFlagAutoFree | abi::kGraphFlagUpload | abi::kGraphFlagUseNodePriority;

// Zeroed pages, handed out in pieces; gone at the end of the scope unless kept.
class Room {
 public:
  explicit Room(size_t bytes) : bytes_(bytes), pages_(static_cast<char*>(map_pages(bytes))) {}
  ~Room() {
    if (pages_) unmap_pages(pages_, bytes_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  explicit operator bool() const { return pages_ != nullptr; }
  template <class T>
  static constexpr size_t of(size_t count) {
    return (count * sizeof(T) + 15) / 16 * 16;
  }
  template <class T>
  T* take(size_t count) {
    T* piece = reinterpret_cast<T*>(pages_ + used_);
    used_ += of<T>(count);
    return piece;
  }
  void keep() { pages_ = nullptr; }

 private:
  size_t bytes_, used_ = 0;
  char* pages_;
};

uint32_t slots_for(size_t nodes) {
  uint32_t slots = 4;
  while (slots < 2 * nodes) slots *= 2;
  return slots;
}

uint32_t slot_of(CUgraphNode node, uint32_t slots) {
  uint64_t mixed = reinterpret_cast<uint64_t>(node) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint32_t>(mixed >> 40) & (slots - 1);
}

}  // namespace

SplitExec* SplitExec::make(CUgraphExec exec, CUgraph graph) {
  uint64_t flags = 0;
  size_t nodes = 0, edges = 0;
  if (real::cuGraphExecGetFlags(exec, &flags) != CUDA_SUCCESS || (flags & ~kHarmlessFlags)) return nullptr;
  if (real::cuGraphGetNodes(graph, nullptr, &nodes) != CUDA_SUCCESS || nodes < 2 || nodes > kMostNodes) return nullptr;
  // A node that can be compared with all others has edges to them, directly or not.
  if (real::cuGraphGetEdges(graph, nullptr, nullptr, &edges) != CUDA_SUCCESS) return nullptr;
  if (edges + 1 < nodes || edges > kMostEdges) return nullptr;
  uint32_t slots = slots_for(nodes);
  size_t bytes = Room::of<SplitExec>(1) + Room::of<SplitNode>(nodes) + Room::of<uint32_t>(nodes) + Room::of<uint32_t>(slots) +
                 Room::of<uint8_t>(nodes);
  Room room(bytes);
  if (!room) return nullptr;
  auto* made = new (room.take<SplitExec>(1)) SplitExec();
  made->bytes_ = bytes;
  made->exec_ = exec;
  made->flags_ = flags;
  made->node_count_ = static_cast<uint32_t>(nodes);
  made->slots_ = slots;
  made->nodes_ = room.take<SplitNode>(nodes);
  made->places_ = room.take<uint32_t>(nodes);
  made->numbers_ = room.take<uint32_t>(slots);
  made->ends_ = room.take<uint8_t>(nodes);
  real::cuCtxGetCurrent(&made->made_in_);
  if (!made->read(graph, edges) || !made->clone(graph)) return nullptr;
  room.keep();
  return made;
}

uint32_t SplitExec::number_of(CUgraphNode original) const {
  for (uint32_t at = slot_of(original, slots_); numbers_[at]; at = (at + 1) & (slots_ - 1))
    if (nodes_[numbers_[at] - 1].original == original) return numbers_[at] - 1;
  return node_count_;
}

SplitNode* SplitExec::find(CUgraphNode original) {
  uint32_t number = number_of(original);
  return number < node_count_ ? &nodes_[number] : nullptr;
}

// Kernels, copies and sets; not those which other kernels may change, in the program's instance alone.
bool SplitExec::is_plain(CUgraphNode node) {
  CUgraphNodeType type = -1;
  if (real::cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
  if (type == abi::kGraphNodeMemcpy || type == abi::kGraphNodeMemset) return true;
  if (type != abi::kGraphNodeKernel) return false;
  alignas(8) int value[16] = {};  // of a driver that knows no such thing it stays 0
  auto* attribute = reinterpret_cast<CUkernelNodeAttrValue*>(value);
  return real::cuGraphKernelNodeGetAttribute(node, abi::kKernelAttrDeviceUpdatable, attribute) != CUDA_SUCCESS || value[0] == 0;
}

// Nodes, edges, and where it can be cut. An edge with data, such as a programmatic one, is not shown by this query: it fails.
bool SplitExec::read(CUgraph graph, size_t edge_count) {
  const size_t nodes = node_count_;
  Room room(Room::of<CUgraphNode>(nodes) + 2 * Room::of<CUgraphNode>(edge_count) + Room::of<GraphEdge>(edge_count) +
            Room::of<uint32_t>(cut_scratch_words(nodes, edge_count)));
  if (!room) return false;
  auto *all = room.take<CUgraphNode>(nodes), *from = room.take<CUgraphNode>(edge_count), *to = room.take<CUgraphNode>(edge_count);
  auto* edges = room.take<GraphEdge>(edge_count);
  size_t got_nodes = nodes, got_edges = edge_count;
  if (real::cuGraphGetNodes(graph, all, &got_nodes) != CUDA_SUCCESS || got_nodes != nodes) return false;
  if (real::cuGraphGetEdges(graph, from, to, &got_edges) != CUDA_SUCCESS || got_edges != edge_count) return false;
  for (uint32_t number = 0; number < node_count_; ++number) {
    if (!is_plain(all[number])) return false;
    nodes_[number].original = all[number];
    uint32_t at = slot_of(all[number], slots_);
    while (numbers_[at]) at = (at + 1) & (slots_ - 1);
    numbers_[at] = number + 1;
  }
  for (size_t i = 0; i < edge_count; ++i) edges[i] = {number_of(from[i]), number_of(to[i])};
  if (!find_cuts(node_count_, edges, edge_count, places_, ends_, room.take<uint32_t>(cut_scratch_words(nodes, edge_count))))
    return false;
  for (uint32_t place = 0; place + 1 < node_count_; ++place)
    if (ends_[place]) return true;
  return false;
}

bool SplitExec::clone(CUgraph graph) {
  if (real::cuGraphClone(&clone_, graph) != CUDA_SUCCESS) return false;
  for (uint32_t number = 0; number < node_count_; ++number)
    if (real::cuGraphNodeFindInClone(&nodes_[number].twin, nodes_[number].original, clone_) != CUDA_SUCCESS) {
      drop_graphs();
      return false;
    }
  return true;
}

// In the context of the stream, which takes what they need on the device.
bool SplitExec::make_parts(uint32_t wanted, CUstream stream) {
  CaptureSafe safe(true);  // another thread may begin a capture at any time
  uint32_t stops[kMostParts], place = 0;
  part_count_ = choose_parts(node_count_, ends_, wanted < kMostParts ? wanted : kMostParts, stops);
  for (uint32_t part = 0; part < part_count_; ++part)
    for (parts_[part].stop = stops[part]; place < stops[part]; ++place) nodes_[places_[place]].part = part;
  CUgraph whole = clone_;
  clone_ = nullptr;
  if (part_count_ < 2 || !divide(whole, 0, part_count_)) return false;
  for (uint32_t part = 0; part < part_count_; ++part)
    if (!instantiate(part) || real::cuGraphUpload(parts_[part].exec, stream) != CUDA_SUCCESS) return false;
  return true;
}

// The graph, ours, has the nodes of the parts [from, to): a copy takes the second half of them, and so on. So each node is
// copied about as often as the number of parts can be halved.
bool SplitExec::divide(CUgraph graph, uint32_t from, uint32_t to) {
  parts_[from].graph = graph;
  if (to - from == 1) return true;
  uint32_t middle = from + (to - from) / 2;
  CUgraph rest = nullptr;
  if (real::cuGraphClone(&rest, graph) != CUDA_SUCCESS) return false;
  parts_[middle].graph = rest;
  for (uint32_t place = from ? parts_[from - 1].stop : 0; place < parts_[to - 1].stop; ++place) {
    SplitNode& node = nodes_[places_[place]];
    CUgraphNode copy = nullptr;
    if (real::cuGraphNodeFindInClone(&copy, node.twin, rest) != CUDA_SUCCESS) return false;
    bool moves = node.part >= middle;
    if (real::cuGraphDestroyNode(moves ? node.twin : copy) != CUDA_SUCCESS) return false;
    if (moves) node.twin = copy;
  }
  return divide(graph, from, middle) && divide(rest, middle, to);
}

bool SplitExec::instantiate(uint32_t part) {
  CUgraphExec& exec = parts_[part].exec;
  if (real::cuGraphInstantiateWithFlags(&exec, parts_[part].graph, flags_ & ~abi::kGraphFlagUpload) != CUDA_SUCCESS) {
    exec = nullptr;
    return false;
  }
  for (uint32_t place = part ? parts_[part - 1].stop : 0; place < parts_[part].stop; ++place) {
    const SplitNode& node = nodes_[places_[place]];
    if (node.disabled && real::cuGraphNodeSetEnabled(exec, node.twin, 0) != CUDA_SUCCESS) return false;
  }
  return true;
}

// Launches of parts that are under way go on: the driver keeps what they need.
void SplitExec::drop_graphs() {
  for (Part& part : parts_) {
    if (part.exec) real::cuGraphExecDestroy(part.exec);
    if (part.graph) real::cuGraphDestroy(part.graph);
    part = Part();
  }
  if (clone_) real::cuGraphDestroy(clone_);
  clone_ = nullptr;
}

}  // namespace berth::shim
