// Parameters of nodes: as work, and changed afterwards, in a graph or in what has been instantiated from it.
#include <cstring>

#include "sim/call.h"
#include "sim/copy.h"
#include "sim/event.h"
#include "sim/graph.h"
#include "sim/launch.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

template <class Params>
CUresult kernel_work(Context& context, const Params* p, Work* work) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  KernelWork made;
  Launch launch{p->func,
                {p->gridDimX, p->gridDimY, p->gridDimZ},
                {p->blockDimX, p->blockDimY, p->blockDimZ},
                p->sharedMemBytes,
                p->kernelParams,
                p->extra};
  if constexpr (requires { p->kern; })
    if (!launch.function) launch.function = reinterpret_cast<CUfunction>(p->kern);
  if (CUresult bad = make_kernel_work(context, launch, &made)) return bad;
  *work = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult kernel_node_work(Context& context, const CUDA_KERNEL_NODE_PARAMS* params, Work* work) {
  return kernel_work(context, params, work);
}
CUresult kernel_node_work(Context& context, const CUDA_KERNEL_NODE_PARAMS_v1* params, Work* work) {
  return kernel_work(context, params, work);
}

CUresult copy_node_work(const CUDA_MEMCPY3D* params, Work* work) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CopyWork made{};
  if (CUresult bad = make_copy(*params, &made)) return bad;
  *work = std::move(made);
  return CUDA_SUCCESS;
}

CUresult fill_node_work(const CUDA_MEMSET_NODE_PARAMS* p, Work* work) {
  if (!p || !p->width || !p->height) return CUDA_ERROR_INVALID_VALUE;
  if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  *work = FillWork{p->dst, p->pitch, p->value, p->elementSize, p->width, p->height};
  return CUDA_SUCCESS;
}

}  // namespace berth::sim

namespace {

CUresult set_in_graph(CUgraphNode handle, CUresult made, Work work) {
  GraphNode* node = node_of(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  if (made) return made;
  if (type_of(node->work) != type_of(work)) return CUDA_ERROR_INVALID_VALUE;
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

// What an instantiated copy or set may become: one-dimensional ones, and a set keeps its height.
bool fits(const Work& before, const Work& after) {
  if (type_of(before) != type_of(after)) return false;
  const auto *copy = std::get_if<CopyWork>(&before), *new_copy = std::get_if<CopyWork>(&after);
  if (copy && (copy->height * copy->depth != 1 || new_copy->height * new_copy->depth != 1)) return false;
  const auto *fill = std::get_if<FillWork>(&before), *new_fill = std::get_if<FillWork>(&after);
  if (!fill) return true;
  if (fill->height != new_fill->height) return false;
  return fill->height == 1 ||
         (fill->width == new_fill->width && fill->element == new_fill->element && fill->pitch == new_fill->pitch);
}

struct ExecNode {
  std::shared_ptr<GraphExec> exec;
  GraphExec::Node* node = nullptr;
};

// Known by the node of the graph that was instantiated, which must still be there.
ExecNode exec_node(CUgraphExec handle, CUgraphNode original) {
  ExecNode found{graph_execs().find(handle)};
  const GraphNode* node = node_of(original);
  for (size_t i = 0; found.exec && node && i < found.exec->nodes.size(); ++i)
    if (found.exec->nodes[i].origin_id == node->id) found.node = &found.exec->nodes[i];
  return found;
}

// A launch in a capture takes its nodes from the copy of the graph, which is kept the same.
void keep_source(const ExecNode& changed) {
  for (const auto& node : changed.exec->source->nodes)
    if (node->cloned_from == changed.node->origin_id)
      node->work = changed.node->enabled ? changed.node->work : Work(EmptyWork{});
}

CUresult set_in_exec(CUgraphExec exec, CUgraphNode original, CUresult made, Work work) {
  ExecNode found = exec_node(exec, original);
  if (!found.node) return CUDA_ERROR_INVALID_VALUE;
  if (made) return made;
  if (!fits(found.node->work, work)) return CUDA_ERROR_INVALID_VALUE;
  found.node->work = std::move(work);
  keep_source(found);
  return CUDA_SUCCESS;
}

// Of any type: `reserved1` has the parameters.
CUresult any_work(Call& call, const CUgraphNodeParams* params, Work* work) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const void* inside = params->reserved1;
  switch (params->type) {
    case 0:
      return kernel_node_work(*call.context, static_cast<const CUDA_KERNEL_NODE_PARAMS*>(inside), work);
    case 1:
      return copy_node_work(&static_cast<const CUDA_MEMCPY_NODE_PARAMS*>(inside)->copyParams, work);
    case 2: {
      const auto* set = static_cast<const CUDA_MEMSET_NODE_PARAMS_v2*>(inside);
      CUDA_MEMSET_NODE_PARAMS plain{set->dst, set->pitch, set->value, set->elementSize, set->width, set->height};
      return fill_node_work(&plain, work);
    }
    case 3: {
      const auto* host = static_cast<const CUDA_HOST_NODE_PARAMS*>(inside);
      *work = HostWork{host->fn, nullptr, nullptr, host->userData};
      return host->fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

constexpr int kMostAttributes = 16;

}  // namespace

extern "C" {

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = kernel_node_work(*call.context, params, &work);
  return set_in_graph(node, made, std::move(work));
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = kernel_node_work(*call.context, params, &work);
  return set_in_graph(node, made, std::move(work));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  SIM_CALL(kDriver);
  Work work;
  CUresult made = copy_node_work(params, &work);
  return set_in_graph(node, made, std::move(work));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  SIM_CALL(kDriver);
  Work work;
  CUresult made = fill_node_work(params, &work);
  return set_in_graph(node, made, std::move(work));
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = any_work(call, params, &work);
  return set_in_graph(node, made, std::move(work));
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = kernel_node_work(*call.context, params, &work);
  return set_in_exec(exec, node, made, std::move(work));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = kernel_node_work(*call.context, params, &work);
  return set_in_exec(exec, node, made, std::move(work));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params,
                                        CUcontext context) {
  SIM_CALL(kDriver);
  Work work;
  CUresult made = context_of(context) ? copy_node_work(params, &work) : CUDA_ERROR_INVALID_VALUE;
  return set_in_exec(exec, node, made, std::move(work));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext context) {
  SIM_CALL(kDriver);
  Work work;
  CUresult made = context_of(context) ? fill_node_work(params, &work) : CUDA_ERROR_INVALID_VALUE;
  return set_in_exec(exec, node, made, std::move(work));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  SIM_CALL(kDriver);
  if (!params || !params->fn) return CUDA_ERROR_INVALID_VALUE;
  return set_in_exec(exec, node, CUDA_SUCCESS, HostWork{params->fn, nullptr, nullptr, params->userData});
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIM_CALL(kDriver);
  auto found = events().find(event);
  return set_in_exec(exec, node, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE, RecordWork{found, nullptr});
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIM_CALL(kDriver);
  auto found = events().find(event);
  return set_in_exec(exec, node, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE, WaitWork{found, nullptr});
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  SIM_CALL(kContext);
  Work work;
  CUresult made = any_work(call, params, &work);
  return set_in_exec(exec, node, made, std::move(work));
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  SIM_CALL(kDriver);
  ExecNode found = exec_node(exec, node);
  if (!found.node || type_of(found.node->work) > 2) return CUDA_ERROR_INVALID_VALUE;
  found.node->enabled = enabled != 0;
  keep_source(found);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  SIM_CALL(kDriver);
  ExecNode found = exec_node(exec, node);
  if (!found.node || !enabled || type_of(found.node->work) > 2) return CUDA_ERROR_INVALID_VALUE;
  *enabled = found.node->enabled;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
  SIM_CALL(kDriver);
  GraphNode* node = node_of(handle);
  if (!node || !value || id < 1 || id > kMostAttributes || type_of(node->work) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(static_cast<void*>(value), node->attributes[id].data(), node->attributes[id].size());
  return CUDA_SUCCESS;
}

// A node that is updatable stays it.
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value) {
  SIM_CALL(kDriver);
  GraphNode* node = node_of(handle);
  if (!node || !value || id < 1 || id > kMostAttributes || type_of(node->work) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (id == berth::abi::kKernelAttrDeviceUpdatable && is_updatable(*node)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(node->attributes[id].data(), static_cast<const void*>(value), node->attributes[id].size());
  return CUDA_SUCCESS;
}

}  // extern "C"
