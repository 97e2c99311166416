// Graphs: nodes are plain work with what they come after.
#pragma once
#include <memory>
#include <vector>

#include "sim/process.h"

namespace berth::sim {

struct GraphNode {
  Graph* graph = nullptr;
  Work work;
  std::vector<GraphNode*> after;
  std::vector<void*> parameter_pointers;  // what cuGraphKernelNodeGetParams shows
};

struct GraphExec;

struct Graph : std::enable_shared_from_this<Graph> {
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::weak_ptr<GraphExec> instance;  // of a graph that allocates there may be one at a time
};

// An instantiated graph: children are in place of their nodes, each node knows what it waits for.
struct GraphExec {
  struct Node {
    Work work;
    std::vector<size_t> after;
    const GraphNode* origin;
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

// graph_run.cpp: one launch.
std::shared_ptr<GraphRun> make_run(const std::shared_ptr<GraphExec>& exec, Context& context);

}  // namespace berth::sim
