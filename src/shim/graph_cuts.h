// Where a graph may be cut in parts that follow each other: arithmetic on numbered nodes, without a driver.
#pragma once
#include <cstddef>
#include <cstdint>

namespace berth::shim {

struct GraphEdge {
  uint32_t from, to;  // the node that comes first, and one that waits for it
};

constexpr size_t cut_scratch_words(size_t nodes, size_t edges) { return 3 * nodes + edges + 1; }

// Puts the nodes in an order in which none comes before one that it waits for: order[place] is a node. ends[place] is 1
// where a part may end: every node up to that place precedes every node behind it. Found at nodes that all earlier ones
// precede and all later ones follow, right behind and right before them; the last place is always one. Time and room
// grow with nodes and edges. False: a cycle, or an edge of no node.
//   order, ends   a word and a byte for each node      scratch   cut_scratch_words(nodes, edges)
bool find_cuts(uint32_t nodes, const GraphEdge* edges, size_t edge_count, uint32_t* order, uint8_t* ends,
               uint32_t* scratch);

// Chooses at most `wanted` parts of about equal numbers of nodes: stops[i] is the first place that is no more in part
// i. Returns how many parts; `stops` has room for `wanted`.
uint32_t choose_parts(uint32_t nodes, const uint8_t* ends, uint32_t wanted, uint32_t* stops);

}  // namespace berth::shim
