// Contract: what splitting a graph needs of the driver (docs/adr/0006). Not recorded on a real GPU yet, so there is no golden file.
#include "sections.h"

namespace contract {
namespace {

constexpr char kPtx[] = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry berth_spin(.param .u64 nanoseconds)
{
  .reg .u64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd0, [nanoseconds];
  mov.u64 %rd1, %globaltimer;
LOOP:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd3, %rd2, %rd1;
  setp.lt.u64 %p, %rd3, %rd0;
  @%p bra LOOP;
  ret;
}
)";

struct Chain {  // a set, a kernel, a set: word 0, then word 1
  CUgraph graph;
  CUgraphNode first, kernel, last;
  CUdeviceptr words;
  CUcontext context;
  unsigned long long ns = 1000;
  void* arguments[1] = {&ns};

  CUDA_MEMSET_NODE_PARAMS set(unsigned word, unsigned value) const { return {words + 4 * word, 0, value, 4, 1, 1}; }
  CUDA_KERNEL_NODE_PARAMS spin(CUfunction function) {
    return {function, 1, 1, 1, 1, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
  }
};

CUfunction make(Chain* chain) {
  CUmodule module;
  CUfunction function;
  chain->context = start();
  D(cuModuleLoadData)(&module, kPtx);
  D(cuModuleGetFunction)(&function, module, "berth_spin");
  D(cuMemAlloc_v2)(&chain->words, 4096);
  D(cuMemsetD32_v2)(chain->words, 0, 8);
  CUDA_MEMSET_NODE_PARAMS one = chain->set(0, 1), two = chain->set(1, 2);
  CUDA_KERNEL_NODE_PARAMS spin = chain->spin(function);
  CALL(cuGraphCreate, &chain->graph, 0);
  CALL(cuGraphAddMemsetNode, &chain->first, chain->graph, nullptr, 0, &one, chain->context);
  CALL(cuGraphAddKernelNode_v2, &chain->kernel, chain->graph, &chain->first, 1, &spin);
  CALL(cuGraphAddMemsetNode, &chain->last, chain->graph, &chain->kernel, 1, &two, chain->context);
  return function;
}

void show_words(const Chain& chain, CUstream stream) {
  unsigned words[2] = {9, 9};
  CALL(cuStreamSynchronize, stream);
  D(cuMemcpyDtoH_v2)(words, chain.words, sizeof words);
  VALUE("word 0", words[0]);
  VALUE("word 1", words[1]);
}

}  // namespace

void graph_parts() {
  Chain chain;
  CUfunction function = make(&chain);
  CUstream stream, other;
  D(cuStreamCreate)(&stream, 1);
  D(cuStreamCreate)(&other, 1);

  // Two parts of clones: the first two nodes, and the last.
  CUgraph front, back;
  CUgraphNode twin = nullptr, again = nullptr;
  CALL(cuGraphClone, &front, chain.graph);
  CALL(cuGraphClone, &back, front);
  CALL(cuGraphNodeFindInClone, &twin, chain.last, front);
  CALLED("of the clone's clone", cuGraphNodeFindInClone, &again, chain.last, back);
  CALL(cuGraphNodeFindInClone, &again, twin, back);
  CALL(cuGraphDestroyNode, twin);
  CALLED("destroyed", cuGraphNodeFindInClone, &again, chain.last, front);
  CUgraphNode kernel = nullptr, in_back = nullptr;
  CALL(cuGraphNodeFindInClone, &kernel, chain.kernel, front);
  for (CUgraphNode node : {chain.first, chain.kernel}) {
    CUgraphNode in_front = nullptr;
    D(cuGraphNodeFindInClone)(&in_front, node, front);
    CALL(cuGraphNodeFindInClone, &in_back, in_front, back);
    CALL(cuGraphDestroyNode, in_back);
  }
  size_t count = 0;
  CALL(cuGraphGetNodes, back, nullptr, &count);
  VALUE("nodes", count);
  CALL(cuGraphGetEdges, back, nullptr, nullptr, &count);
  VALUE("edges", count);
  CUgraphExec whole, parts[2];
  CALL(cuGraphInstantiateWithFlags, &whole, chain.graph, 9);
  CALL(cuGraphInstantiateWithFlags, &parts[0], front, 9);
  CALL(cuGraphInstantiateWithFlags, &parts[1], back, 9);
  uint64_t flags = 0;
  CALL(cuGraphExecGetFlags, whole, &flags);
  VALUE("flags", flags);
  for (CUgraphExec part : parts) CALL(cuGraphUpload, part, stream);
  CALL(cuGraphLaunch, parts[0], stream);
  show_words(chain, stream);
  CALL(cuGraphLaunch, parts[1], stream);
  show_words(chain, stream);

  // Changes by the nodes of the clones, and by those of the program's graph.
  CUDA_MEMSET_NODE_PARAMS seven = chain.set(1, 7);
  CUDA_KERNEL_NODE_PARAMS longer = chain.spin(function);
  chain.ns = 2000;
  unsigned enabled = 9;
  CALL(cuGraphExecKernelNodeSetParams_v2, parts[0], kernel, &longer);
  CALLED("a node of the original", cuGraphExecKernelNodeSetParams_v2, parts[0], chain.kernel, &longer);
  CALL(cuGraphExecMemsetNodeSetParams, parts[1], again, &seven, chain.context);
  CALL(cuGraphNodeSetEnabled, parts[0], kernel, 0);
  CALL(cuGraphNodeGetEnabled, parts[0], kernel, &enabled);
  VALUE("enabled", enabled);
  CUgraphNodeParams any{};
  CUDA_MEMSET_NODE_PARAMS_v2 eight{seven.dst, 0, 8, 4, 1, 1, chain.context};
  any.type = 2;
  std::memcpy(any.reserved1, &eight, sizeof eight);
  CALL(cuGraphNodeSetParams, again, &any);
  CALL(cuGraphExecNodeSetParams, whole, chain.last, &any);
  for (CUgraphExec part : parts) CALL(cuGraphLaunch, part, stream);
  show_words(chain, stream);
  CALL(cuGraphExecMemsetNodeSetParams, whole, chain.last, &seven, chain.context);
  CUgraphExecUpdateResultInfo info{};
  CALL(cuGraphExecUpdate_v2, whole, chain.graph, &info);
  CALLED("after an update by the graph", cuGraphExecMemsetNodeSetParams, whole, chain.last, &seven, chain.context);

  // Attributes and edges that keep a graph whole.
  alignas(8) int value[16] = {};
  CALLED("updatable", cuGraphKernelNodeGetAttribute, chain.kernel, 13, reinterpret_cast<CUkernelNodeAttrValue*>(value));
  VALUE("updatable", value[0]);
  CUgraphNode from[8], to[8], programmatic;
  CALL(cuGraphAddKernelNode_v2, &programmatic, chain.graph, nullptr, 0, &longer);
  CUgraphEdgeData data{1, 0, 1, {}};
  CALLED("programmatic", cuGraphAddDependencies_v2, chain.graph, &chain.kernel, &programmatic, &data, 1);
  count = 8;
  CALLED("without data", cuGraphGetEdges, chain.graph, from, to, &count);
  CALLED("the number", cuGraphGetEdges, chain.graph, nullptr, nullptr, &count);

  // Beside a capture: what order needs goes into other streams, and a launch becomes a node.
  uint64_t ids[2] = {0, 0};
  CUevent event;
  CUgraph captured;
  D(cuEventCreate)(&event, 2);
  CALL(cuStreamGetId, stream, &ids[0]);
  CALL(cuStreamGetId, other, &ids[1]);
  VALUE("ids differ", ids[0] != ids[1]);
  CALL(cuEventRecord, event, stream);
  CALL(cuStreamBeginCapture_v2, stream, 0);
  CALL(cuStreamWaitEvent, other, event, 0);
  CALL(cuGraphLaunch, whole, other);
  CALLED("captured", cuGraphLaunch, whole, stream);
  CALL(cuStreamEndCapture, stream, &captured);
  CALL(cuGraphGetNodes, captured, nullptr, &count);
  VALUE("nodes", count);

  // In flight: launches of one instance follow each other, and destruction waits for nobody.
  for (int i = 0; i < 3; ++i) CALL(cuGraphLaunch, parts[0], i % 2 ? stream : other);
  for (CUgraphExec part : parts) CALL(cuGraphExecDestroy, part);
  CALL(cuGraphDestroy, front);
  CALL(cuGraphDestroy, back);
  CALL(cuEventDestroy_v2, event);
  CALL(cuCtxSynchronize);
  CALL(cuGraphDestroy, captured);
  CALL(cuGraphExecDestroy, whole);
  CALL(cuGraphDestroy, chain.graph);
}

}  // namespace contract
