// Nodes made one by one.
#include "sim/call.h"
#include "sim/event.h"
#include "sim/graph.h"
#include "sim/graph_memory.h"
#include "sim/module.h"

using namespace berth::sim;

namespace {

// Where a node shall go: the graph and what it comes after.
struct Spot {
  std::shared_ptr<Graph> graph;
  std::vector<GraphNode*> after;
};

CUresult find_place(CUgraph handle, const CUgraphNode* after, size_t count, const CUgraphNode* result, Spot* spot) {
  spot->graph = graphs().find(handle);
  if (!spot->graph || !result || (count && !after)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = node_of(after[i]);
    if (!node || node->graph != spot->graph.get()) return CUDA_ERROR_INVALID_VALUE;
    spot->after.push_back(node);
  }
  return CUDA_SUCCESS;
}

GraphNode* put(Spot& spot, CUgraphNode* result, Work work) {
  GraphNode* node = add_node(*spot.graph, std::move(spot.after), std::move(work));
  *result = reinterpret_cast<CUgraphNode>(node);
  return node;
}

template <class Params>
CUresult add_kernel(Context& context, Spot& spot, CUgraphNode* result, const Params* params) {
  Work work;
  if (CUresult bad = kernel_node_work(context, params, &work)) return bad;
  put(spot, result, std::move(work));
  return CUDA_SUCCESS;
}

// The parameters shown belong to the node and live as long.
CUresult kernel_params(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  GraphNode* node = node_of(handle);
  auto* work = node ? std::get_if<KernelWork>(&node->work) : nullptr;
  if (!work || !params) return CUDA_ERROR_INVALID_VALUE;
  node->parameter_pointers.clear();
  for (size_t i = 0; i < work->kernel->parameters.size(); ++i)
    node->parameter_pointers.push_back(work->arguments.data() + work->kernel->offset_of(i));
  *params = {work->function,
             work->grid[0],
             work->grid[1],
             work->grid[2],
             work->block[0],
             work->block[1],
             work->block[2],
             work->shared_bytes,
             node->parameter_pointers.data(),
             nullptr,
             nullptr,
             nullptr};
  return CUDA_SUCCESS;
}

#define SIM_NODE_CALL(needs) \
  SIM_CALL(needs);           \
  Spot spot;                 \
  if (CUresult bad = find_place(graph, after, count, node, &spot)) return bad

}  // namespace

extern "C" {

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIM_NODE_CALL(kContext);
  return add_kernel(*call.context, spot, node, params);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_NODE_CALL(kContext);
  return add_kernel(*call.context, spot, node, params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMCPY3D* params, CUcontext context) {
  SIM_NODE_CALL(kDriver);
  if (!context_of(context)) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  if (CUresult bad = copy_node_work(params, &work)) return bad;
  put(spot, node, std::move(work));
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  SIM_NODE_CALL(kDriver);
  if (!context_of(context)) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  if (CUresult bad = fill_node_work(params, &work)) return bad;
  put(spot, node, std::move(work));
  return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* params) {
  SIM_NODE_CALL(kDriver);
  if (!params || !params->fn) return CUDA_ERROR_INVALID_VALUE;
  put(spot, node, HostWork{params->fn, nullptr, nullptr, params->userData});
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count) {
  SIM_NODE_CALL(kDriver);
  put(spot, node, EmptyWork{});
  return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                  CUgraph child) {
  SIM_NODE_CALL(kDriver);
  auto original = graphs().find(child);
  if (!original || original == spot.graph) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes(*original)) return CUDA_ERROR_NOT_SUPPORTED;
  auto copy = clone_graph(*original);
  graphs().add<CUgraph>(copy);  // its handle may be asked for
  put(spot, node, ChildWork{copy});
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   CUevent event) {
  SIM_NODE_CALL(kDriver);
  auto found = events().find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  put(spot, node, RecordWork{found, nullptr});
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 CUevent event) {
  SIM_NODE_CALL(kDriver);
  auto found = events().find(event);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  put(spot, node, WaitWork{found, nullptr});
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIM_NODE_CALL(kDriver);
  if (!params || !params->bytesize || params->poolProps.allocType != 1) return CUDA_ERROR_INVALID_VALUE;
  if (params->poolProps.location.type != 1 || !device_of(params->poolProps.location.id))
    return CUDA_ERROR_INVALID_VALUE;
  auto address = std::make_shared<GraphAddress>(params->bytesize);
  if (!address->start) return CUDA_ERROR_OUT_OF_MEMORY;
  params->dptr = address->start;
  GraphAllocWork work{*params, address};
  work.params.accessDescs = nullptr;
  work.params.accessDescCount = 0;
  put(spot, node, std::move(work));
  return CUDA_SUCCESS;
}

// Of the kinds of nodes only the one that takes memory.
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges,
                           size_t count, CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  if (params->type != berth::abi::kGraphNodeMemAlloc || edges) return CUDA_ERROR_NOT_SUPPORTED;
  return cuGraphAddMemAllocNode(node, graph, after, count, &params->alloc);
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, CUgraphNodeParams* params) {
  return cuGraphAddNode_v2(node, graph, after, nullptr, count, params);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                               CUdeviceptr pointer) {
  SIM_NODE_CALL(kDriver);
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  put(spot, node, GraphFreeWork{pointer});
  return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  const auto* work = node ? std::get_if<GraphAllocWork>(&node->work) : nullptr;
  if (!work || !params) return CUDA_ERROR_INVALID_VALUE;
  *params = work->params;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* pointer) {
  SIM_CALL(kDriver);
  const GraphNode* node = node_of(handle);
  const auto* work = node ? std::get_if<GraphFreeWork>(&node->work) : nullptr;
  if (!work || !pointer) return CUDA_ERROR_INVALID_VALUE;
  *pointer = work->address;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_CALL(kDriver);
  return kernel_params(node, params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIM_CALL(kDriver);
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS full{};
  if (CUresult bad = kernel_params(node, &full)) return bad;
  *params = {full.func,      full.gridDimX,  full.gridDimY,       full.gridDimZ,     full.blockDimX,
             full.blockDimY, full.blockDimZ, full.sharedMemBytes, full.kernelParams, full.extra};
  return CUDA_SUCCESS;
}

}  // extern "C"
