// Changes of instantiated graphs. What can be done to the parts of a split graph (split_exec.h) is done to them, too; after any
// other change it stays whole. Setters of nodes of other types than a split graph has are refused by the driver, so they are not here.
#include <string.h>

#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/split_exec.h"

namespace berth::shim::intercept {
namespace {

// `result` is the driver's, for the program's own instance.
template <class OnExec, class OnGraph>
CUresult followed(UpdateCall& call, CUgraphExec exec, CUgraphNode node, CUresult result, OnExec on_exec, OnGraph on_graph) {
  SplitExec* split = result == CUDA_SUCCESS ? split_of(call.client(), exec) : nullptr;
  if (split) split->change(call.client(), node, on_exec, on_graph);
  return result;
}

void not_followed(UpdateCall& call, CUgraphExec exec) {
  if (SplitExec* split = split_of(call.client(), exec)) split->stay_whole(call.client());
}

// The form of a graph's own node that takes a context, as that of an instance's does.
template <class Params>
CUresult set_in_graph(CUgraphNode node, CUgraphNodeType type, const Params& params) {
  CUgraphNodeParams any{};
  any.type = type;
  static_assert(sizeof params <= sizeof any.reserved1);
  ::memcpy(any.reserved1, &params, sizeof params);
  return real::cuGraphNodeSetParams(node, &any);
}

}  // namespace

CUresult cuGraphExecKernelNodeSetParams(UpdateCall& call, decltype(&::cuGraphExecKernelNodeSetParams) real, CUgraphExec exec,
                                        CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return followed(call, exec, node, real(exec, node, params),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, params); },
                  [&](SplitNode& ours) { return real::cuGraphKernelNodeSetParams(ours.twin, params); });
}

CUresult cuGraphExecKernelNodeSetParams_v2(UpdateCall& call, decltype(&::cuGraphExecKernelNodeSetParams_v2) real, CUgraphExec exec,
                                           CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return followed(call, exec, node, real(exec, node, params),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, params); },
                  [&](SplitNode& ours) { return real::cuGraphKernelNodeSetParams_v2(ours.twin, params); });
}

CUresult cuGraphExecMemcpyNodeSetParams(UpdateCall& call, decltype(&::cuGraphExecMemcpyNodeSetParams) real, CUgraphExec exec,
                                        CUgraphNode node, const CUDA_MEMCPY3D* params, CUcontext context) {
  return followed(call, exec, node, real(exec, node, params, context),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, params, context); },
                  [&](SplitNode& ours) {
                    return set_in_graph(ours.twin, abi::kGraphNodeMemcpy, CUDA_MEMCPY_NODE_PARAMS{0, 0, context, *params});
                  });
}

CUresult cuGraphExecMemsetNodeSetParams(UpdateCall& call, decltype(&::cuGraphExecMemsetNodeSetParams) real, CUgraphExec exec,
                                        CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  return followed(call, exec, node, real(exec, node, params, context),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, params, context); },
                  [&](SplitNode& ours) {
                    return set_in_graph(ours.twin, abi::kGraphNodeMemset,
                                        CUDA_MEMSET_NODE_PARAMS_v2{params->dst, params->pitch, params->value, params->elementSize,
                                                                   params->width, params->height, context});
                  });
}

CUresult cuGraphExecNodeSetParams(UpdateCall& call, decltype(&::cuGraphExecNodeSetParams) real, CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams* params) {
  return followed(call, exec, node, real(exec, node, params),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, params); },
                  [&](SplitNode& ours) { return real::cuGraphNodeSetParams(ours.twin, params); });
}

CUresult cuGraphNodeSetEnabled(UpdateCall& call, decltype(&::cuGraphNodeSetEnabled) real, CUgraphExec exec, CUgraphNode node,
                               unsigned enabled) {
  return followed(call, exec, node, real(exec, node, enabled),
                  [&](CUgraphExec part, SplitNode& ours) { return real(part, ours.twin, enabled); },
                  [&](SplitNode& ours) {
                    ours.disabled = enabled == 0;
                    return CUDA_SUCCESS;
                  });
}

// A refusal does not say how much of it has been done.
CUresult cuGraphExecUpdate(UpdateCall& call, decltype(&::cuGraphExecUpdate) real, CUgraphExec exec, CUgraph graph, CUgraphNode* node,
                           CUgraphExecUpdateResult* outcome) {
  CUresult result = real(exec, graph, node, outcome);
  not_followed(call, exec);
  return result;
}
CUresult cuGraphExecUpdate_v2(UpdateCall& call, decltype(&::cuGraphExecUpdate_v2) real, CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo* info) {
  CUresult result = real(exec, graph, info);
  not_followed(call, exec);
  return result;
}

}  // namespace berth::shim::intercept
