// Graphs as handles: nodes, edges, copies.
#include "sim/graph.h"

#include <algorithm>
#include <unordered_set>

#include "sim/call.h"
#include "sim/graph_memory.h"
#include "sim/test_interface.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

std::unordered_set<const void*>& known_nodes() {
  static auto* const nodes = new std::unordered_set<const void*>;
  return *nodes;
}

}  // namespace

Registry<Graph>& graphs() {
  static auto* const registry = new Registry<Graph>;
  return *registry;
}

GraphNode* node_of(CUgraphNode handle) {
  return known_nodes().count(handle) ? reinterpret_cast<GraphNode*>(handle) : nullptr;
}

GraphNode* add_node(Graph& graph, std::vector<GraphNode*> after, Work work) {
  auto node = std::make_unique<GraphNode>();
  node->graph = &graph;
  node->id = process().next_id++;
  node->work = std::move(work);
  node->after = std::move(after);
  known_nodes().insert(node.get());
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back().get();
}

std::shared_ptr<Graph> clone_graph(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->cloned_from = &graph;
  std::map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : graph.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work)) child->graph = clone_graph(*child->graph);
    GraphNode* twin = twins[node.get()] = add_node(*copy, {}, std::move(work));
    twin->cloned_from = node->id;
    twin->attributes = node->attributes;
  }
  for (const auto& node : graph.nodes) {
    GraphNode* twin = twins[node.get()];
    for (const GraphNode* before : node->after) twin->after.push_back(twins[before]);
    for (const auto& [before, data] : node->edges) twin->edges[twins[before]] = data;
  }
  return copy;
}

// Its nodes are no handles any more; what is instantiated from it lives on.
void remove_graph(const std::shared_ptr<Graph>& graph) {
  for (const auto& node : graph->nodes) {
    known_nodes().erase(node.get());
    if (auto* child = std::get_if<ChildWork>(&node->work)) remove_graph(child->graph);
  }
  graphs().remove(graph.get());
}

int type_of(const Work& work) {
  struct Visitor {
    int operator()(const KernelWork&) { return 0; }
    int operator()(const CopyWork&) { return 1; }
    int operator()(const FillWork&) { return 2; }
    int operator()(const HostWork&) { return 3; }
    int operator()(const ChildWork&) { return 4; }
    int operator()(const EmptyWork&) { return 5; }
    int operator()(const ManagedWork&) { return 5; }
    int operator()(const WaitWork&) { return 6; }
    int operator()(const RecordWork&) { return 7; }
    int operator()(const GraphAllocWork&) { return 10; }
    int operator()(const GraphFreeWork&) { return 11; }
    int operator()(const PoolFreeWork&) { return 11; }
    int operator()(const ValueWork&) { return 12; }
  };
  return std::visit(Visitor{}, work);
}

bool has_memory_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    if (auto* child = std::get_if<ChildWork>(&node->work)) return has_memory_nodes(*child->graph);
    return std::holds_alternative<GraphAllocWork>(node->work) || std::holds_alternative<GraphFreeWork>(node->work);
  });
}

bool is_updatable(const GraphNode& node) {
  auto at = node.attributes.find(abi::kKernelAttrDeviceUpdatable);
  return at != node.attributes.end() && at->second[0] != 0;
}

bool has_updatable_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) { return is_updatable(*node); });
}

}  // namespace berth::sim

namespace {

using Nodes = std::vector<GraphNode*>;

// How the driver gives lists: the number alone where there is no room asked for, else as many as fit and nulls behind.
CUresult give(const Nodes& nodes, CUgraphNode* list, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (list)
    for (size_t i = 0; i < *count; ++i) list[i] = i < nodes.size() ? reinterpret_cast<CUgraphNode>(nodes[i]) : nullptr;
  *count = list ? std::min(*count, nodes.size()) : nodes.size();
  return CUDA_SUCCESS;
}

Nodes all_nodes(const Graph& graph, bool roots_only) {
  Nodes nodes;
  for (const auto& node : graph.nodes)
    if (!roots_only || node->after.empty()) nodes.push_back(node.get());
  return nodes;
}

Nodes dependents(const GraphNode& node) {
  Nodes nodes;
  for (const auto& other : node.graph->nodes)
    if (std::find(other->after.begin(), other->after.end(), &node) != other->after.end()) nodes.push_back(other.get());
  return nodes;
}

bool is_plain(const CUgraphEdgeData& data) { return !data.from_port && !data.to_port && !data.type; }

// `data`: null where all are plain.
CUresult add_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                   size_t count) {
  auto graph = graphs().find(handle);
  if (!graph || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    GraphNode *before = node_of(from[i]), *after = node_of(to[i]);
    if (!before || !after || before == after || before->graph != graph.get() || after->graph != graph.get())
      return CUDA_ERROR_INVALID_VALUE;
    if (std::find(after->after.begin(), after->after.end(), before) != after->after.end())
      return CUDA_ERROR_INVALID_VALUE;
    after->after.push_back(before);
    if (data && !is_plain(data[i])) after->edges[before] = data[i];
  }
  return CUDA_SUCCESS;
}

CUresult edges_of(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  auto graph = graphs().find(handle);
  if (!graph || !count || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  size_t total = 0, room = *count;
  for (const auto& node : graph->nodes)
    for (GraphNode* before : node->after) {
      if (from && total < room) {
        auto edge = node->edges.find(before);
        if (!data && edge != node->edges.end()) return CUDA_ERROR_LOSSY_QUERY;
        from[total] = reinterpret_cast<CUgraphNode>(before);
        to[total] = reinterpret_cast<CUgraphNode>(node.get());
        if (data) data[total] = edge == node->edges.end() ? CUgraphEdgeData{} : edge->second;
      }
      ++total;
    }
  for (size_t i = total; from && i < room; ++i) from[i] = to[i] = nullptr;
  *count = from ? std::min(room, total) : total;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  SIM_CALL(kDriver);
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  *graph = graphs().add<CUgraph>(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  SIM_CALL(kDriver);
  auto graph = graphs().find(handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  remove_graph(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* result, CUgraph handle) {
  SIM_CALL(kDriver);
  auto graph = graphs().find(handle);
  if (!result || !graph) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  *result = graphs().add<CUgraph>(clone_graph(*graph));
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* result, CUgraphNode handle, CUgraph clone) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  auto graph = graphs().find(clone);
  if (!result || !node || !graph || graph->cloned_from != node->graph) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& twin : graph->nodes)
    if (twin->cloned_from == node->id) {
      *result = reinterpret_cast<CUgraphNode>(twin.get());
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  SIM_CALL(kDriver);
  GraphNode* node = node_of(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (is_updatable(*node)) return CUDA_ERROR_INVALID_VALUE;
  Graph& graph = *node->graph;
  for (const auto& other : graph.nodes) {
    std::erase(other->after, node);
    other->edges.erase(node);
  }
  known_nodes().erase(node);
  std::erase_if(graph.nodes, [node](const auto& each) { return each.get() == node; });
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(kDriver);
  auto graph = graphs().find(handle);
  return graph ? give(all_nodes(*graph, false), nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(kDriver);
  auto graph = graphs().find(handle);
  return graph ? give(all_nodes(*graph, true), nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  SIM_CALL(kDriver);
  return edges_of(graph, from, to, nullptr, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  SIM_CALL(kDriver);
  return edges_of(graph, from, to, data, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  SIM_CALL(kDriver);
  return add_edges(graph, from, to, nullptr, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  SIM_CALL(kDriver);
  return add_edges(graph, from, to, data, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  return node ? give(node->after, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  return node ? give(dependents(*node), nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = node->named < 0 ? type_of(node->work) : node->named;
  return CUDA_SUCCESS;
}

// From now on it is said to be of that type, for those that are not simulated.
void berth_sim_name_node(void* handle, int type) {
  if (GraphNode* node = node_of(static_cast<CUgraphNode>(handle))) node->named = type;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  const auto* child = node ? std::get_if<ChildWork>(&node->work) : nullptr;
  if (!graph || !child) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(child->graph.get());
  return CUDA_SUCCESS;
}

}  // extern "C"
