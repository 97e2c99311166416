// Graphs that are instantiated, launched, destroyed: those that can be launched in parts (split_exec.h), and memory nodes.
//
// Memory nodes. Instantiation reserves an upper bound, since a launch must not fail later; once a graph has run,
// what counts is what the driver has reserved for the graphs of the device (they share it) until it is trimmed.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"
#include "shim/pools.h"
#include "shim/split_exec.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

struct Need {
  uint64_t steps = 0;  // of the pool's growth
  uint32_t device = 0;
};

// Adds up the allocation nodes of a graph and of its child graphs. Bodies of conditional nodes can't have any.
void add_nodes(CUgraph graph, Need* need, int depth) {
  size_t count = 0;
  if (depth > 16 || real::cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
  auto* nodes = static_cast<CUgraphNode*>(map_pages(count * sizeof(CUgraphNode)));
  if (!nodes) return;
  size_t room = count;
  if (real::cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
    for (size_t i = 0; i < count && i < room; ++i) {
      CUgraphNodeType type;
      if (real::cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) continue;
      if (type == abi::kGraphNodeChildGraph) {
        CUgraph child;
        if (real::cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) add_nodes(child, need, depth + 1);
      } else if (type == abi::kGraphNodeMemAlloc) {
        CUDA_MEM_ALLOC_NODE_PARAMS params;
        if (real::cuGraphMemAllocNodeGetParams(nodes[i], &params) != CUDA_SUCCESS) continue;
        if (params.poolProps.location.type != abi::kMemLocationDevice) continue;
        need->steps += pool_footprint(params.bytesize) / kPoolStepBytes;
        need->device = static_cast<uint32_t>(params.poolProps.location.id);
      }
    }
  }
  unmap_pages(nodes, room * sizeof(CUgraphNode));
}

template <class Real>
CUresult instantiate(AllocCall& call, CUgraphExec* exec, CUgraph graph, Real real) {
  Need need;
  if (exec && graph) add_nodes(graph, &need, 0);
  if (need.steps == 0) {
    CUresult result = real();
    if (result == CUDA_SUCCESS) graph_instantiated(call.client(), *exec, graph);
    return result;
  }
  uint64_t bytes = need.steps * kPoolStepBytes, granted;
  if (!call.reserve(need.device, wire::Kind::graph, bytes, wire::Force::none, &granted)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = call.call_while_leaving(need.device, bytes, real);
  if (result == CUDA_SUCCESS) {
    Allocation made;
    made.space = Space::graph_exec;
    made.kind = wire::Kind::graph;
    made.device = static_cast<uint8_t>(need.device);
    made.key = reinterpret_cast<uint64_t>(*exec);
    made.references = static_cast<uint32_t>(need.steps);
    call.client().table.insert(made);
    call.client().has_graph_memory.store(true, std::memory_order_relaxed);
  }
  settle_graph_memory(call.client(), need.device, granted);
  return result;
}

}  // namespace

CUresult cuGraphInstantiate(AllocCall& call, decltype(&::cuGraphInstantiate) real, CUgraphExec* exec, CUgraph graph,
                            CUgraphNode* node, char* log, size_t size) {
  return instantiate(call, exec, graph, [&] { return real(exec, graph, node, log, size); });
}
CUresult cuGraphInstantiate_v2(AllocCall& call, decltype(&::cuGraphInstantiate_v2) real, CUgraphExec* exec, CUgraph graph,
                               CUgraphNode* node, char* log, size_t size) {
  return instantiate(call, exec, graph, [&] { return real(exec, graph, node, log, size); });
}
CUresult cuGraphInstantiateWithFlags(AllocCall& call, decltype(&::cuGraphInstantiateWithFlags) real, CUgraphExec* exec,
                                     CUgraph graph, uint64_t flags) {
  return instantiate(call, exec, graph, [&] { return real(exec, graph, flags); });
}
CUresult cuGraphInstantiateWithParams(AllocCall& call, decltype(&::cuGraphInstantiateWithParams) real, CUgraphExec* exec,
                                      CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return instantiate(call, exec, graph, [&] { return real(exec, graph, params); });
}

CUresult cuGraphLaunch(SubmitCall& call, decltype(&::cuGraphLaunch) real, CUgraphExec exec, CUstream stream) {
  SplitExec* split = split_of(call.client(), exec);
  CUresult result = split ? split->launch(call, real, stream) : real(exec, stream);
  if (result == CUDA_SUCCESS && call.client().has_graph_memory.load(std::memory_order_relaxed))
    call.client().table.update(Space::graph_exec, reinterpret_cast<uint64_t>(exec), [](Allocation& a) { a.link = 1; });
  return result;
}

CUresult cuGraphExecDestroy(FreeCall& call, decltype(&::cuGraphExecDestroy) real, CUgraphExec exec) {
  SplitExec* split = take_split(call.client(), exec);  // before the handle can be another's
  Allocation allocation;
  bool ours = call.client().has_graph_memory.load(std::memory_order_relaxed) &&
              call.client().table.remove(Space::graph_exec, reinterpret_cast<uint64_t>(exec), &allocation);
  CUresult result = real(exec);
  if (split && result == CUDA_SUCCESS) split->discard(call.client(), false);
  else if (split) put_split(call.client(), exec, split);
  if (!ours) return result;
  if (result != CUDA_SUCCESS) call.client().table.insert(allocation);
  settle_graph_memory(call.client(), allocation.device, 0);
  return result;
}

CUresult cuDeviceGraphMemTrim(FreeCall& call, decltype(&::cuDeviceGraphMemTrim) real, CUdevice device) {
  CUresult result = real(device);
  if (result != CUDA_SUCCESS || device < 0 || !call.client().has_graph_memory.load(std::memory_order_relaxed)) return result;
  uint32_t account = account_of(device);
  // Launched graphs need their memory anew at the next launch: their bounds count again, so that it can't fail then.
  call.client().table.for_each([&](Allocation& a) {
    if (a.space == Space::graph_exec && a.device == account) a.link = 0;
  });
  settle_graph_memory(call.client(), account, 0);
  return result;
}

}  // namespace berth::shim::intercept
