// Graphs changed after they were made: copies of nodes, parameters in graphs and in what is instantiated from them.
#include <cstring>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

// A graph of a set, a copy and a kernel, one behind the other, on four words: x = v; y = x; y += 2 x.
class SimGraph : public testing::Test {
 protected:
  void SetUp() override {
    context = use_card();
    ASSERT_NE(context, nullptr);
    ASSERT_EQ(CU(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&x, 16), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&y, 16), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemAlloc_v2)(&other, 16), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemsetD32_v2)(other, 0x41200000, 4), CUDA_SUCCESS);  // 10.0f
    ASSERT_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CUDA_MEMSET_NODE_PARAMS one = set_to(0x3f800000);  // 1.0f
    CUDA_MEMCPY3D copy = copy_from(x);
    CUDA_KERNEL_NODE_PARAMS add = axpy(2);
    ASSERT_EQ(CU(cuGraphAddMemsetNode)(&set, graph, nullptr, 0, &one, context), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphAddMemcpyNode)(&copied, graph, &set, 1, &copy, context), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphAddKernelNode_v2)(&added, graph, &copied, 1, &add), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CU(cuGraphExecDestroy)(exec), CU(cuGraphDestroy)(graph);
    CU(cuMemFree_v2)(x), CU(cuMemFree_v2)(y), CU(cuMemFree_v2)(other), CU(cuStreamDestroy_v2)(stream);
  }
  CUDA_MEMSET_NODE_PARAMS set_to(unsigned value) { return {x, 0, value, 4, 4, 1}; }
  CUDA_MEMCPY3D copy_from(CUdeviceptr source) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = 2;
    copy.srcDevice = source, copy.dstDevice = y;
    copy.WidthInBytes = 16, copy.Height = copy.Depth = 1;
    return copy;
  }
  CUDA_KERNEL_NODE_PARAMS axpy(float a) {
    factor = a;
    return {kernel("berth_axpy"), 1, 1, 1, 32, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
  }
  float result(CUgraphExec of) {
    float got[4] = {};
    EXPECT_EQ(CU(cuGraphLaunch)(of, stream), CUDA_SUCCESS);
    CU(cuMemcpyDtoHAsync_v2)(got, y, sizeof got, stream), CU(cuStreamSynchronize)(stream);
    for (float one : got) EXPECT_EQ(one, got[0]);
    return got[0];
  }
  float result() { return result(exec); }

  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr x = 0, y = 0, other = 0;
  CUgraph graph = nullptr;
  CUgraphNode set = nullptr, copied = nullptr, added = nullptr;
  CUgraphExec exec = nullptr;
  float factor = 2;
  uint64_t count = 4;
  void* arguments[4] = {&y, &x, &factor, &count};
};

TEST_F(SimGraph, ACopyOfANodeIsFoundInACloneOfItsGraph) {
  CUgraph clone, second;
  CUgraphNode twin = nullptr, again = nullptr;
  ASSERT_EQ(CU(cuGraphClone)(&clone, graph), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphNodeFindInClone)(&twin, copied, clone), CUDA_SUCCESS);
  EXPECT_NE(twin, copied);
  CUgraphNodeType type = -1;
  EXPECT_EQ(CU(cuGraphNodeGetType)(twin, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, 1);
  // Of a clone of the clone: only of the graph that it was made from.
  ASSERT_EQ(CU(cuGraphClone)(&second, clone), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphNodeFindInClone)(&again, copied, second), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGraphNodeFindInClone)(&again, twin, second), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphNodeFindInClone)(&again, copied, graph), CUDA_ERROR_INVALID_VALUE) << "no clone";
  EXPECT_EQ(CU(cuGraphDestroyNode)(twin), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphNodeFindInClone)(&again, copied, clone), CUDA_ERROR_INVALID_VALUE) << "removed";
  size_t nodes = 0, edges = 9;
  CU(cuGraphGetNodes)(clone, nullptr, &nodes), CU(cuGraphGetEdges)(clone, nullptr, nullptr, &edges);
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(edges, 0u);
  CU(cuGraphDestroy)(clone), CU(cuGraphDestroy)(second);
}

TEST_F(SimGraph, EdgesWithDataAreNotShownWithoutIt) {
  CUgraphNode from[4], to[4], last;
  CUgraphEdgeData data[4]{}, programmatic{1, 0, 1, {}};
  size_t count_of = 4;
  EXPECT_EQ(CU(cuGraphGetEdges)(graph, from, to, &count_of), CUDA_SUCCESS);
  EXPECT_EQ(count_of, 2u);
  EXPECT_EQ(from[2], nullptr);
  CUDA_KERNEL_NODE_PARAMS add = axpy(1);
  ASSERT_EQ(CU(cuGraphAddKernelNode_v2)(&last, graph, nullptr, 0, &add), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphAddDependencies_v2)(graph, &added, &last, &programmatic, 1), CUDA_SUCCESS);
  count_of = 4;
  EXPECT_EQ(CU(cuGraphGetEdges)(graph, from, to, &count_of), CUDA_ERROR_LOSSY_QUERY);
  count_of = 4;
  EXPECT_EQ(CU(cuGraphGetEdges_v2)(graph, from, to, data, &count_of), CUDA_SUCCESS);
  ASSERT_EQ(count_of, 3u);
  EXPECT_EQ(data[2].type, 1);
  EXPECT_EQ(data[1].type, 0);
}

TEST_F(SimGraph, WhatIsInstantiatedChangesNodeByNode) {
  EXPECT_EQ(result(), 3);
  CUDA_KERNEL_NODE_PARAMS add = axpy(5);
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, added, &add), CUDA_SUCCESS);
  EXPECT_EQ(result(), 6);
  factor = 3;
  CUDA_KERNEL_NODE_PARAMS_v1 old{add.func, 1, 1, 1, 32, 1, 1, 0, arguments, nullptr};
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams)(exec, added, &old), CUDA_SUCCESS);
  EXPECT_EQ(result(), 4);
  CUDA_MEMCPY3D copy = copy_from(other);
  EXPECT_EQ(CU(cuGraphExecMemcpyNodeSetParams)(exec, copied, &copy, context), CUDA_SUCCESS);
  EXPECT_EQ(result(), 13);
  CUDA_MEMSET_NODE_PARAMS two = set_to(0x40000000);
  EXPECT_EQ(CU(cuGraphExecMemsetNodeSetParams)(exec, set, &two, context), CUDA_SUCCESS);
  EXPECT_EQ(result(), 16);
  CUgraphNodeParams any{};
  any.type = 1;
  CUDA_MEMCPY_NODE_PARAMS back{0, 0, context, copy_from(x)};
  std::memcpy(any.reserved1, &back, sizeof back);
  EXPECT_EQ(CU(cuGraphExecNodeSetParams)(exec, copied, &any), CUDA_SUCCESS);
  EXPECT_EQ(result(), 8);
  unsigned enabled = 9;
  EXPECT_EQ(CU(cuGraphNodeSetEnabled)(exec, added, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphNodeGetEnabled)(exec, added, &enabled), CUDA_SUCCESS);
  EXPECT_EQ(enabled, 0u);
  EXPECT_EQ(result(), 2);
  EXPECT_EQ(CU(cuGraphNodeSetEnabled)(exec, added, 1), CUDA_SUCCESS);
  EXPECT_EQ(result(), 8);
  // The graph itself has not changed.
  CUgraphExec fresh;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&fresh, graph, 0), CUDA_SUCCESS);
  factor = 2;
  EXPECT_EQ(result(fresh), 3);
  CU(cuGraphExecDestroy)(fresh);
}

TEST_F(SimGraph, WhatDoesNotFitIsRefused) {
  CUDA_KERNEL_NODE_PARAMS add = axpy(5);
  CUDA_MEMSET_NODE_PARAMS rows = set_to(1);
  rows.width = 2, rows.height = 2, rows.pitch = 8;
  CUDA_MEMCPY3D copy = copy_from(x);
  copy.Height = 2, copy.WidthInBytes = 8, copy.srcPitch = copy.dstPitch = 8;
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, copied, &add), CUDA_ERROR_INVALID_VALUE) << "another type";
  EXPECT_EQ(CU(cuGraphExecMemsetNodeSetParams)(exec, set, &rows, context), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGraphExecMemcpyNodeSetParams)(exec, copied, &copy, context), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, added, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(result(), 3);
  ASSERT_EQ(CU(cuGraphDestroyNode)(added), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, added, &add), CUDA_ERROR_INVALID_VALUE) << "no node any more";
}

TEST_F(SimGraph, NodesOfAGraphChangeForWhatIsInstantiatedLater) {
  CUDA_KERNEL_NODE_PARAMS add = axpy(5);
  CUDA_MEMCPY3D copy = copy_from(other);
  CUDA_MEMSET_NODE_PARAMS two = set_to(0x40000000);
  EXPECT_EQ(CU(cuGraphKernelNodeSetParams_v2)(added, &add), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphMemcpyNodeSetParams)(copied, &copy), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphMemsetNodeSetParams)(set, &two), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphMemsetNodeSetParams)(copied, &two), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec fresh;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&fresh, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(result(fresh), 20);
  EXPECT_EQ(result(), 3);
  CU(cuGraphExecDestroy)(fresh);
}

// After an update by a whole graph, nodes are still named by those of the first one; a launch in a capture is of what
// it is now.
TEST_F(SimGraph, UpdatesFollowEachOther) {
  CUgraph clone, captured;
  CUgraphNode twin;
  ASSERT_EQ(CU(cuGraphClone)(&clone, graph), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphNodeFindInClone)(&twin, set, clone), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS two = set_to(0x40000000);
  ASSERT_EQ(CU(cuGraphMemsetNodeSetParams)(twin, &two), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(CU(cuGraphExecUpdate_v2)(exec, clone, &info), CUDA_SUCCESS);
  EXPECT_EQ(result(), 6);
  CUDA_KERNEL_NODE_PARAMS add = axpy(5);
  ASSERT_EQ(CU(cuGraphExecKernelNodeSetParams_v2)(exec, added, &add), CUDA_SUCCESS);
  EXPECT_EQ(result(), 12);
  ASSERT_EQ(CU(cuStreamBeginCapture_v2)(stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamEndCapture)(stream, &captured), CUDA_SUCCESS);
  CUgraphExec outer;
  ASSERT_EQ(CU(cuGraphInstantiateWithFlags)(&outer, captured, 0), CUDA_SUCCESS);
  EXPECT_EQ(result(outer), 12);
  CU(cuGraphExecDestroy)(outer), CU(cuGraphDestroy)(captured), CU(cuGraphDestroy)(clone);
}

TEST_F(SimGraph, UpdatableNodesStayInTheirGraphAndInOneInstance) {
  unsigned char value[64] = {}, got[64] = {};
  value[0] = 1;
  auto* attribute = reinterpret_cast<CUkernelNodeAttrValue*>(value);
  EXPECT_EQ(CU(cuGraphKernelNodeGetAttribute)(added, 13, reinterpret_cast<CUkernelNodeAttrValue*>(got)), CUDA_SUCCESS);
  EXPECT_EQ(got[0], 0);
  ASSERT_EQ(CU(cuGraphKernelNodeSetAttribute)(added, 13, attribute), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphKernelNodeSetAttribute)(added, 13, attribute), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuGraphKernelNodeSetAttribute)(copied, 13, attribute), CUDA_ERROR_INVALID_VALUE) << "no kernel";
  EXPECT_EQ(CU(cuGraphDestroyNode)(added), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec second;
  EXPECT_EQ(CU(cuGraphInstantiateWithFlags)(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace berth::sim
