// Instantiated graphs: made, updated, launched.
#include <algorithm>
#include <cstring>

#include "sim/call.h"
#include "sim/capture.h"
#include "sim/graph.h"
#include "sim/graph_memory.h"

using namespace berth::sim;

namespace berth::sim {

Registry<GraphExec>& graph_execs() {
  static auto* const registry = new Registry<GraphExec>;
  return *registry;
}

}  // namespace berth::sim

namespace {

enum UpdateResult { kUpdated = 0, kUpdateError = 1, kTopologyChanged = 2, kTypeChanged = 3, kNotSupported = 6 };

// Puts the graph's nodes behind those that are there already; a child's nodes stand before an empty node that is the
// child to those behind it. False: the graph has a cycle.
bool flatten(const Graph& graph, const std::vector<size_t>& roots_after, GraphExec& exec, std::vector<size_t>* leaves) {
  std::map<const GraphNode*, size_t> places;
  size_t left = graph.nodes.size();
  while (left) {
    size_t before = left;
    for (const auto& node : graph.nodes) {
      if (places.count(node.get())) continue;
      std::vector<size_t> after;
      for (const GraphNode* other : node->after)
        if (auto at = places.find(other); at != places.end()) after.push_back(at->second);
      if (after.size() != node->after.size()) continue;
      if (after.empty()) after = roots_after;
      Work work = node->work;
      if (auto* child = std::get_if<ChildWork>(&node->work)) {
        std::vector<size_t> ends;
        if (!flatten(*child->graph, after, exec, &ends)) return false;
        if (!ends.empty()) after = ends;
        work = EmptyWork{};
      }
      if (auto* alloc = std::get_if<GraphAllocWork>(&work)) exec.allocations.push_back(alloc->address);
      places[node.get()] = exec.nodes.size();
      exec.nodes.push_back({std::move(work), std::move(after), node.get(), node->id});
      --left;
    }
    if (left == before) return false;
  }
  std::vector<bool> has_next(exec.nodes.size());
  for (const auto& node : exec.nodes)
    for (size_t other : node.after) has_next[other] = true;
  for (const auto& [node, place] : places)
    if (!has_next[place]) leaves->push_back(place);
  return true;
}

CUresult instantiate(CUgraphExec* result, CUgraph handle, uint64_t flags) {
  auto graph = graphs().find(handle);
  if (!result || !graph || flags & ~15ull) return CUDA_ERROR_INVALID_VALUE;
  bool only_once = has_memory_nodes(*graph) || has_updatable_nodes(*graph);
  if (only_once && !graph->instance.expired()) return CUDA_ERROR_NOT_SUPPORTED;
  auto exec = std::make_shared<GraphExec>();
  std::vector<size_t> leaves;
  if (!flatten(*graph, {}, *exec, &leaves)) return CUDA_ERROR_INVALID_VALUE;
  exec->flags = flags;
  exec->source = clone_graph(*graph);
  graph->instance = exec;
  *result = graph_execs().add<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

// Recorded: the first upload or launch takes 2 MiB that stay with the context.
CUresult prepare(Context& context) {
  if (!context.graph_memory) context.graph_memory = take_physical(context.device->card, kPageBytes, PageKind::module);
  return context.graph_memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult upload(CUgraphExec handle, Stream* stream) {
  auto exec = graph_execs().find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = prepare(*stream->context)) return bad;
  uint64_t bytes = 0;
  for (const auto& address : exec->allocations) bytes += pages_for(address->bytes) * kPageBytes;
  return stream->context->device->graph_memory->prepare(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult launch(CUgraphExec handle, Stream* stream) {
  auto exec = graph_execs().find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return capture_work(*stream, ChildWork{clone_graph(*exec->source)});
  if (CUresult bad = forbid_implicit(*stream)) return bad;
  Context& context = *stream->context;
  if (context.error) return context.error;
  if (CUresult bad = prepare(context)) return bad;
  bool free_first = exec->flags & 1;  // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
  if (CUresult bad = context.device->graph_memory->begin(exec->allocations, context, *context.device, free_first))
    return bad;
  auto operation = std::make_unique<Operation>();
  operation->graph = make_run(exec, context);
  if (exec->last_launch && !exec->last_launch->done) operation->after.push_back(exec->last_launch);
  exec->last_launch = submit(*stream, std::move(operation));
  return CUDA_SUCCESS;
}

UpdateResult update(GraphExec& exec, const Graph& graph, const GraphNode** culprit) {
  GraphExec fresh;
  std::vector<size_t> leaves;
  *culprit = nullptr;
  if (!flatten(graph, {}, fresh, &leaves)) return kUpdateError;
  if (fresh.nodes.size() != exec.nodes.size()) return kTopologyChanged;
  for (size_t i = 0; i < fresh.nodes.size(); ++i) {
    *culprit = fresh.nodes[i].origin;
    if (fresh.nodes[i].after != exec.nodes[i].after) return kTopologyChanged;
    if (type_of(fresh.nodes[i].work) != type_of(exec.nodes[i].work)) return kTypeChanged;
  }
  if (!fresh.allocations.empty()) return kNotSupported;
  *culprit = nullptr;
  // Its nodes are still known by those of the graph that it was made from.
  std::map<uint64_t, uint64_t> names;
  for (size_t i = 0; i < fresh.nodes.size(); ++i) {
    names[fresh.nodes[i].origin_id] = exec.nodes[i].origin_id;
    fresh.nodes[i].origin = exec.nodes[i].origin;
    fresh.nodes[i].origin_id = exec.nodes[i].origin_id;
    fresh.nodes[i].enabled = exec.nodes[i].enabled;
  }
  exec.nodes = std::move(fresh.nodes);
  exec.source = clone_graph(graph);
  for (const auto& node : exec.source->nodes) node->cloned_from = names[node->cloned_from];
  return kUpdated;
}

CUresult instantiate_with(Call&, CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                          Stream* stream) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(exec, graph, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out = result ? 1 : 0;
  if (!result && params->flags & 2) result = upload(*exec, stream);  // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
  return result;
}

}  // namespace

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, uint64_t flags) {
  SIM_CALL(kDriver);
  return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* culprit, char* log, size_t log_bytes) {
  SIM_CALL(kDriver);
  if (culprit) *culprit = nullptr;
  if (log && log_bytes) *log = '\0';
  return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* culprit, char* log, size_t log_bytes) {
  SIM_CALL(kDriver);
  if (culprit) *culprit = nullptr;
  if (log && log_bytes) *log = '\0';
  return instantiate(exec, graph, 0);
}

SIM_BOTH_FLAVOURS(cuGraphInstantiateWithParams, _ptsz,
                  (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params), {
                    SIM_CALL(kContext);
                    return instantiate_with(call, exec, graph, params,
                                            params ? stream_of(call, params->hUploadStream, flavour) : nullptr);
                  })

SIM_BOTH_FLAVOURS(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), {
  SIM_CALL(kContext);
  return upload(exec, stream_of(call, stream, flavour));
})

SIM_BOTH_FLAVOURS(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), {
  SIM_CALL(kContext);
  return launch(exec, stream_of(call, stream, flavour));
})

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  SIM_CALL(kDriver);
  return graph_execs().remove(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, uint64_t* flags) {
  SIM_CALL(kDriver);
  auto exec = graph_execs().find(handle);
  if (!exec || !flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* culprit, CUgraphExecUpdateResult* outcome) {
  SIM_CALL(kDriver);
  auto exec = graph_execs().find(handle);
  auto source = graphs().find(graph);
  if (!exec || !source || !outcome) return CUDA_ERROR_INVALID_VALUE;
  const GraphNode* node = nullptr;
  *outcome = update(*exec, *source, &node);
  if (culprit) *culprit = reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(node));
  return *outcome == kUpdated ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  SIM_CALL(kDriver);
  auto exec = graph_execs().find(handle);
  auto source = graphs().find(graph);
  if (!exec || !source || !info) return CUDA_ERROR_INVALID_VALUE;
  const GraphNode* node = nullptr;
  info->result = update(*exec, *source, &node);
  info->errorNode = reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(node));
  info->errorFromNode = nullptr;
  return info->result == kUpdated ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

}  // extern "C"
