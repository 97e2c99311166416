// Graphs: nodes are plain work with what they come after.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "sim/process.h"

namespace berth::sim {

struct GraphNode {
  Graph* graph = nullptr;
  uint64_t id = 0, cloned_from = 0;  // never used again; of the node that it is a copy of
  Work work;
  std::vector<GraphNode*> after;
  std::map<const GraphNode*, CUgraphEdgeData> edges;  // of those in `after` whose edge is not a plain one
  std::map<CUkernelNodeAttrID, std::array<unsigned char, 64>> attributes;
  std::vector<void*> parameter_pointers;  // what cuGraphKernelNodeGetParams shows
  int named = -1;                         // the type that cuGraphNodeGetType tells; -1: its own
};

struct GraphExec;

struct Graph : std::enable_shared_from_this<Graph> {
  const Graph* cloned_from = nullptr;  // no more than a name
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::weak_ptr<GraphExec> instance;  // of a graph that allocates there may be one at a time
};

// An instantiated graph: children are in place of their nodes, each node knows what it waits for.
struct GraphExec {
  struct Node {
    Work work;
    std::vector<size_t> after;
    const GraphNode* origin;
    uint64_t origin_id;
    bool enabled = true;
  };
  std::vector<Node> nodes;
  std::shared_ptr<Graph> source;  // a copy
  std::vector<std::shared_ptr<GraphAddress>> allocations;
  uint64_t flags = 0;
  TicketRef last_launch;  // launches of one graph follow each other
};

struct GraphRun {
  struct Node {
    Operation operation;
    size_t missing = 0;
    std::vector<size_t> next;
    Lane lane;
    bool done = false;
  };
  std::shared_ptr<GraphExec> exec;
  std::vector<Node> nodes;
  std::vector<size_t> ready;
  size_t left = 0;
};

Registry<Graph>& graphs();
Registry<GraphExec>& graph_execs();
GraphNode* node_of(CUgraphNode handle);  // null: none
GraphNode* add_node(Graph& graph, std::vector<GraphNode*> after, Work work);
std::shared_ptr<Graph> clone_graph(const Graph& graph);
void remove_graph(const std::shared_ptr<Graph>& graph);
int type_of(const Work& work);  // CUgraphNodeType
bool has_memory_nodes(const Graph& graph);
bool has_updatable_nodes(const Graph& graph);  // nodes that kernels may update
bool is_updatable(const GraphNode& node);

// graph_params.cpp: what parameters describe as work.
CUresult kernel_node_work(Context& context, const CUDA_KERNEL_NODE_PARAMS* params, Work* work);
CUresult kernel_node_work(Context& context, const CUDA_KERNEL_NODE_PARAMS_v1* params, Work* work);
CUresult copy_node_work(const CUDA_MEMCPY3D* params, Work* work);
CUresult fill_node_work(const CUDA_MEMSET_NODE_PARAMS* params, Work* work);

// graph_run.cpp: one launch.
std::shared_ptr<GraphRun> make_run(const std::shared_ptr<GraphExec>& exec, Context& context);

}  // namespace berth::sim
