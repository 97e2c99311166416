#include "shim/graph_cuts.h"

namespace berth::shim {
namespace {

// Edges by where they start: targets[first[n]] up to targets[first[n + 1]] wait for n. `left` counts what each waits
// for.
bool sort_edges(uint32_t nodes, const GraphEdge* edges, size_t count, uint32_t* first, uint32_t* targets,
                uint32_t* left) {
  for (uint32_t n = 0; n < nodes; ++n) first[n] = left[n] = 0;
  first[nodes] = 0;
  for (size_t i = 0; i < count; ++i) {
    if (edges[i].from >= nodes || edges[i].to >= nodes) return false;
    ++first[edges[i].from + 1];
    ++left[edges[i].to];
  }
  for (uint32_t n = 0; n < nodes; ++n) first[n + 1] += first[n];
  for (size_t i = count; i > 0; --i) {
    // Filled from the back: first[from + 1] goes down to where the edges of `from` begin, which is what first[from]
    // shall be.
    const GraphEdge& edge = edges[i - 1];
    targets[--first[edge.from + 1]] = edge.to;
  }
  for (uint32_t n = 0; n < nodes; ++n) first[n] = first[n + 1];
  first[nodes] = static_cast<uint32_t>(count);
  return true;
}

}  // namespace

bool find_cuts(uint32_t nodes, const GraphEdge* edges, size_t edge_count, uint32_t* order, uint8_t* ends,
               uint32_t* scratch) {
  uint32_t *first = scratch, *targets = first + nodes + 1, *left = targets + edge_count, *place = left + nodes;
  if (edge_count >= UINT32_MAX || !sort_edges(nodes, edges, edge_count, first, targets, left)) return false;
  uint32_t ready = 0;  // order[0 .. ready) wait for nothing that is not before them
  for (uint32_t n = 0; n < nodes; ++n)
    if (left[n] == 0) order[ready++] = n;
  for (uint32_t at = 0; at < ready; ++at) {
    place[order[at]] = at;
    for (uint32_t i = first[order[at]]; i < first[order[at] + 1]; ++i)
      if (--left[targets[i]] == 0) order[ready++] = targets[i];
  }
  if (ready != nodes) return false;

  // A node follows all before it if it is the only one up to there that nothing up to there waits for: the nearest of
  // those that wait for a node is behind it for none of the others. In the same way backwards.
  uint32_t* farthest = left;  // by place: one more than the place of the last one that it waits for
  for (uint32_t at = 0; at < nodes; ++at) farthest[at] = 0;
  for (uint32_t at = 0; at < nodes; ++at)
    for (uint32_t i = first[order[at]]; i < first[order[at] + 1]; ++i)
      if (farthest[place[targets[i]]] < at + 1) farthest[place[targets[i]]] = at + 1;
  uint32_t reach = 0;  // the farthest of the places at which somebody first waits for one of those before
  for (uint32_t at = 0; at < nodes; ++at) {
    ends[at] = reach <= at;
    uint32_t nearest = UINT32_MAX;
    for (uint32_t i = first[order[at]]; i < first[order[at] + 1]; ++i)
      if (place[targets[i]] < nearest) nearest = place[targets[i]];
    if (nearest > reach) reach = nearest;
  }
  uint32_t needs = UINT32_MAX;
  for (uint32_t at = nodes; at-- > 0;) {
    ends[at] = ends[at] && needs >= at + 1;
    if (farthest[at] < needs) needs = farthest[at];
  }
  // Right before such a node a part may end, too.
  for (uint32_t at = 0; at + 1 < nodes; ++at) ends[at] |= ends[at + 1];
  if (nodes) ends[nodes - 1] = 1;
  return true;
}

uint32_t choose_parts(uint32_t nodes, const uint8_t* ends, uint32_t wanted, uint32_t* stops) {
  uint32_t made = 0, last = 0, at = 0, below = 0, above = 0;
  for (uint32_t part = 1; part < wanted; ++part) {
    auto target = static_cast<uint32_t>(static_cast<uint64_t>(part) * nodes / wanted);
    for (; at < target; ++at)
      if (ends[at]) below = at + 1;
    if (above < target) above = target;
    while (above < nodes && (above <= target || !ends[above - 1])) ++above;
    bool has_below = below > last && below < nodes;
    bool has_above = above > last && above < nodes;
    if (!has_below && !has_above) continue;
    last = has_below && (!has_above || target - below <= above - target) ? below : above;
    stops[made++] = last;
  }
  stops[made++] = nodes;
  return made;
}

}  // namespace berth::shim
