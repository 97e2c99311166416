// Long graphs in parts: what is changed in an instance is changed in its parts, what cannot be split stays whole, and whatever
// goes wrong leaves the program's launch as it was.
#include <algorithm>
#include <cstring>
#include <string>

#include "split_graphs.h"

namespace berth {
namespace {

CUgraphExec destroyed(CUgraphExec exec) {
  EXPECT_EQ(D(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
  return nullptr;
}

}  // namespace

class SplitChanges : public SplitGraphs {
 protected:
  using Change = std::function<CUresult(CUgraphExec, Graph&)>;

  // The same changes of an instance that is split and of one that is not, before there are parts and after: equal results.
  // `in_parts`: it is still launched so.
  void expect_followed(const char* what, const Change& change, bool in_parts = true) {
    SCOPED_TRACE(what);
    Graph graph;
    mixed(graph);
    CUgraphExec whole = graph.instantiate_whole();
    EXPECT_EQ(change(whole, graph), CUDA_SUCCESS);
    std::vector<float> expected = results_of(whole);
    whole = destroyed(whole);

    CUgraphExec early = graph.instantiate();
    EXPECT_EQ(change(early, graph), CUDA_SUCCESS);
    if (in_parts) until_parts(early, stream);
    else for (int i = 0; i < 10; ++i) expect_launches(early, 1);
    EXPECT_EQ(results_of(early), expected) << "changed before there were parts";
    early = destroyed(early);

    CUgraphExec late = graph.instantiate();
    until_parts(late, stream);
    EXPECT_EQ(change(late, graph), CUDA_SUCCESS);
    uint64_t before = driver_launches();
    EXPECT_EQ(results_of(late), expected) << "changed in its parts";
    EXPECT_EQ(driver_launches() - before > kRounds, in_parts);
    late = destroyed(late);

    CUgraphExec unchanged = graph.instantiate_whole();
    EXPECT_NE(results_of(unchanged), expected) << "the change changes nothing";
    destroyed(unchanged);
  }
  std::vector<float> results_of(CUgraphExec exec) {
    EXPECT_EQ(D(cuMemsetD32_v2)(data, 0, 1024), CUDA_SUCCESS);
    for (uint64_t i = 0; i < kRounds; ++i) EXPECT_EQ(D(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    finish(stream);
    return floats(0, 256);
  }
  void expect_launches(CUgraphExec exec, uint64_t expected) {
    EXPECT_EQ(launches_of(exec, stream), expected);
    finish(stream);
  }
  // Held, long, and yet in one piece, with nothing of ours made for it.
  void expect_whole(const char* what, Graph& graph, uint64_t flags = 0) {
    SCOPED_TRACE(what);
    CUgraphExec exec = nullptr;
    uint64_t clones = calls("cuGraphClone"), instances = calls("cuGraphInstantiateWithFlags");
    ASSERT_EQ(D(cuGraphInstantiateWithFlags)(&exec, graph.handle, flags), CUDA_SUCCESS);
    for (int i = 0; i < 8; ++i) expect_launches(exec, 1);
    EXPECT_EQ(calls("cuGraphClone"), clones);
    EXPECT_EQ(calls("cuGraphInstantiateWithFlags"), instances + 1);
    destroyed(exec);
  }
  static constexpr uint64_t kRounds = 3;
};

TEST_F(SplitChanges, AKernelsParametersAreSet) {
  float a = 11;
  uint64_t n = 64;
  CUdeviceptr y = word(192), x = ones;
  void* arguments[] = {&y, &x, &a, &n};
  expect_followed("now", [&](CUgraphExec exec, Graph& graph) {
    CUDA_KERNEL_NODE_PARAMS params{axpy_kernel, 2, 1, 1, 32, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
    return D(cuGraphExecKernelNodeSetParams_v2)(exec, graph.nodes[5], &params);
  });
  expect_followed("as before", [&](CUgraphExec exec, Graph& graph) {
    CUDA_KERNEL_NODE_PARAMS_v1 params{axpy_kernel, 2, 1, 1, 32, 1, 1, 0, arguments, nullptr};
    return D(cuGraphExecKernelNodeSetParams)(exec, graph.nodes[5], &params);
  });
  expect_followed("by type", [&](CUgraphExec exec, Graph& graph) {
    CUDA_KERNEL_NODE_PARAMS params{axpy_kernel, 2, 1, 1, 32, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
    CUgraphNodeParams any{};
    any.type = 0;
    std::memcpy(any.reserved1, &params, sizeof params);
    return D(cuGraphExecNodeSetParams)(exec, graph.nodes[5], &any);
  });
}

TEST_F(SplitChanges, ACopyAndASetGetOtherAddressesAndValues) {
  expect_followed("a copy", [&](CUgraphExec exec, Graph& graph) {
    CUDA_MEMCPY3D params = copy_params(word(0), word(192), 256);
    return D(cuGraphExecMemcpyNodeSetParams)(exec, graph.nodes[8], &params, context);
  });
  expect_followed("a set", [&](CUgraphExec exec, Graph& graph) {
    CUDA_MEMSET_NODE_PARAMS params{word(64), 0, 0x40a00000, 4, 64, 1};
    return D(cuGraphExecMemsetNodeSetParams)(exec, graph.nodes[0], &params, context);
  });
  expect_followed("a set, by type", [&](CUgraphExec exec, Graph& graph) {
    CUgraphNodeParams any{};
    any.type = 2;
    CUDA_MEMSET_NODE_PARAMS_v2 params{word(130), 0, 0x40a00000, 4, 1, 1, context};
    std::memcpy(any.reserved1, &params, sizeof params);
    return D(cuGraphExecNodeSetParams)(exec, graph.nodes[9], &any);
  });
}

TEST_F(SplitChanges, NodesAreSwitchedOffAndOn) {
  expect_followed("off", [&](CUgraphExec exec, Graph& graph) { return D(cuGraphNodeSetEnabled)(exec, graph.nodes[5], 0); });
  expect_followed("off, on, and another off", [&](CUgraphExec exec, Graph& graph) {
    EXPECT_EQ(D(cuGraphNodeSetEnabled)(exec, graph.nodes[1], 0), CUDA_SUCCESS);
    EXPECT_EQ(D(cuGraphNodeSetEnabled)(exec, graph.nodes[8], 0), CUDA_SUCCESS);
    return D(cuGraphNodeSetEnabled)(exec, graph.nodes[1], 1);
  });
}

TEST_F(SplitChanges, ChangesAddUp) {
  float a = 2;
  uint64_t n = 64;
  CUdeviceptr y = word(128), x = word(192);
  void* arguments[] = {&y, &x, &a, &n};
  expect_followed("all", [&](CUgraphExec exec, Graph& graph) {
    CUDA_KERNEL_NODE_PARAMS kernel{axpy_kernel, 1, 1, 1, 64, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
    CUDA_MEMSET_NODE_PARAMS set{word(64), 0, 0x40a00000, 4, 64, 1};
    for (float factor : {9.0f, 3.0f}) {
      a = factor;
      EXPECT_EQ(D(cuGraphExecKernelNodeSetParams_v2)(exec, graph.nodes[6], &kernel), CUDA_SUCCESS);
    }
    EXPECT_EQ(D(cuGraphExecMemsetNodeSetParams)(exec, graph.nodes[0], &set, context), CUDA_SUCCESS);
    return D(cuGraphNodeSetEnabled)(exec, graph.nodes[9], 0);
  });
}

// By a whole graph: the program's instance changes, the parts go.
TEST_F(SplitChanges, AnUpdateByAGraphEndsTheSplit) {
  for (bool old : {false, true})
    expect_followed("update", [&](CUgraphExec exec, Graph&) {
      Graph other;
      mixed(other);
      CUDA_MEMSET_NODE_PARAMS params{word(64), 0, 0x40a00000, 4, 64, 1};
      EXPECT_EQ(D(cuGraphMemsetNodeSetParams)(other.nodes[0], &params), CUDA_SUCCESS);
      CUgraphExecUpdateResultInfo info{};
      CUgraphExecUpdateResult result;
      return old ? D(cuGraphExecUpdate)(exec, other.handle, nullptr, &result) : D(cuGraphExecUpdate_v2)(exec, other.handle, &info);
    }, false);
}

// A refusal does not say how much of it has been done.
TEST_F(SplitChanges, ARefusedUpdateByAGraphEndsTheSplit) {
  for (bool old : {false, true}) {
    Graph graph, other;
    mixed(graph);
    mixed(other);
    other.spin();
    CUgraphExec exec = graph.instantiate();
    until_parts(exec, stream);
    CUgraphExecUpdateResultInfo info{};
    CUgraphExecUpdateResult result;
    EXPECT_EQ(old ? D(cuGraphExecUpdate)(exec, other.handle, nullptr, &result) : D(cuGraphExecUpdate_v2)(exec, other.handle, &info),
              CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    expect_launches(exec, 1);
    destroyed(exec);
  }
}

// Refused by the driver: nothing has changed, and it is still launched in parts.
TEST_F(SplitChanges, ARefusedChangeChangesNothing) {
  Graph graph, other;
  mixed(graph);
  CUgraphExec exec = graph.instantiate();
  CUgraphNode foreign = other.spin();
  CUevent event;
  ASSERT_EQ(D(cuEventCreate)(&event, 2), CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
  CUDA_MEMSET_NODE_PARAMS set{word(64), 0, 0, 4, 32, 2};
  auto refused = [&] {
    EXPECT_EQ(D(cuGraphExecHostNodeSetParams)(exec, graph.nodes[3], &host), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(D(cuGraphExecEventRecordNodeSetEvent)(exec, graph.nodes[3], event), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(D(cuGraphExecEventWaitNodeSetEvent)(exec, graph.nodes[3], event), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(D(cuGraphExecMemsetNodeSetParams)(exec, graph.nodes[0], &set, context), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(D(cuGraphNodeSetEnabled)(exec, foreign, 0), CUDA_ERROR_INVALID_VALUE);
  };
  refused();
  until_parts(exec, stream);
  refused();
  EXPECT_GT(launches_of(exec, stream), 1u);
  finish(stream);
  EXPECT_EQ(D(cuEventDestroy_v2)(event), CUDA_SUCCESS);
  destroyed(exec);
}

TEST_F(SplitChanges, OtherNodesAndEdgesStayWhole) {
  CUevent event;
  ASSERT_EQ(D(cuEventCreate)(&event, 2), CUDA_SUCCESS);
  auto with = [&](const char* what, const std::function<CUresult(Graph&, CUgraphNode*)>& add) {
    Graph graph;
    CUgraphNode node = nullptr;
    count_up(graph);
    CUresult result = add(graph, &node);
    graph.put(result, node);
    graph.spin();
    expect_whole(what, graph);
  };
  with("host", [](Graph& graph, CUgraphNode* node) {
    CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
    return D(cuGraphAddHostNode)(node, graph.handle, graph.last.data(), 1, &host);
  });
  with("empty", [](Graph& graph, CUgraphNode* node) { return D(cuGraphAddEmptyNode)(node, graph.handle, graph.last.data(), 1); });
  with("event record", [&](Graph& graph, CUgraphNode* node) {
    return D(cuGraphAddEventRecordNode)(node, graph.handle, graph.last.data(), 1, event);
  });
  with("event wait", [&](Graph& graph, CUgraphNode* node) {
    return D(cuGraphAddEventWaitNode)(node, graph.handle, graph.last.data(), 1, event);
  });
  with("memory", [&](Graph& graph, CUgraphNode* node) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = 1;
    params.poolProps.location = {1, 0};
    params.bytesize = 4 << 20;
    CUgraphNode alloc = nullptr;
    graph.put(D(cuGraphAddMemAllocNode)(&alloc, graph.handle, graph.last.data(), 1, &params), alloc);
    return D(cuGraphAddMemFreeNode)(node, graph.handle, &alloc, 1, params.dptr);
  });
  with("child", [&](Graph& graph, CUgraphNode* node) {
    Graph child;
    child.spin();
    return D(cuGraphAddChildGraphNode)(node, graph.handle, graph.last.data(), 1, child.handle);
  });
  with("programmatic edge", [&](Graph& graph, CUgraphNode* node) {
    CUgraphEdgeData programmatic{1, 0, 1, {}};
    CUgraphNode before = graph.last[0];
    graph.last = {};
    *node = graph.spin();
    return D(cuGraphAddDependencies_v2)(graph.handle, &before, node, &programmatic, 1);
  });
  // Semaphores (8, 9), memory (10, 11), batches of memory operations, conditional ones, and what is not known yet.
  for (int type : {8, 9, 10, 11, 12, 13, 14})
    with(("type " + std::to_string(type)).c_str(), [&](Graph& graph, CUgraphNode* node) {
      *node = graph.spin();
      name_node(*node, type);
      return CUDA_SUCCESS;
    });
  with("updated by kernels", [&](Graph& graph, CUgraphNode* node) {
    alignas(8) int value[16] = {1};
    *node = graph.spin();
    return D(cuGraphKernelNodeSetAttribute)(*node, 13, reinterpret_cast<CUkernelNodeAttrValue*>(value));
  });
  EXPECT_EQ(D(cuEventDestroy_v2)(event), CUDA_SUCCESS);
}

TEST_F(SplitChanges, WhatCannotBeCutOrMayNotBeStaysWhole) {
  Graph side_by_side, single, launched_by_device, off;
  for (int i = 0; i < 3; ++i) {
    side_by_side.last = {};
    side_by_side.spin();
    side_by_side.spin();
  }
  expect_whole("two branches", side_by_side);
  single.spin(1'000'000);
  expect_whole("one node", single);
  count_up(launched_by_device);
  expect_whole("device launch", launched_by_device, 4);
  count_up(off);
  fake->page->split_ns = 0;
  expect_whole("not asked for", off);
  fake->page->split_ns = kSplitNs;

  // An instance made while something is captured is left alone: nothing of ours then.
  CUstream captured;
  CUgraph made;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(D(cuStreamCreate)(&captured, 1), CUDA_SUCCESS);
  ASSERT_EQ(D(cuStreamBeginCapture_v2)(captured, 2), CUDA_SUCCESS);
  ASSERT_EQ(D(cuGraphInstantiateWithFlags)(&exec, off.handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(D(cuStreamEndCapture)(captured, &made), CUDA_SUCCESS);
  for (int i = 0; i < 8; ++i) expect_launches(exec, 1);
  destroyed(exec);
  EXPECT_EQ(D(cuGraphDestroy)(made), CUDA_SUCCESS);
  EXPECT_EQ(D(cuStreamDestroy_v2)(captured), CUDA_SUCCESS);
}

TEST_F(SplitChanges, OnlyLongGraphsInPartsAndOnlyWhileWorkIsHeld) {
  Graph graph;
  count_up(graph);
  CUgraphExec exec = graph.instantiate();
  fake->page->split_ns = 1'000'000'000;
  for (int i = 0; i < 8; ++i) expect_launches(exec, 1);  // shorter than that
  fake->page->split_ns = kSplitNs;
  gate(wire::kGateTrack);
  for (int i = 0; i < 8; ++i) expect_launches(exec, 1);
  gate(0);
  for (int i = 0; i < 8; ++i) expect_launches(exec, 1);
  uint64_t instances = calls("cuGraphInstantiateWithFlags");
  gate(kHold);
  int refreshes = fake->refreshes[0];
  until_parts(exec, stream);
  uint64_t parts = calls("cuGraphInstantiateWithFlags") - instances;
  EXPECT_GT(parts, 1u);
  EXPECT_LE(parts, 6u);
  EXPECT_TRUE(eventually([&] { return fake->refreshes[0] > refreshes; })) << "what parts take on the device is to be seen";
  expect_launches(exec, parts);
  gate(0);
  expect_launches(exec, 1);
  gate(kHold);
  expect_launches(exec, parts);
  // With priorities by node, and with what frees memory that it has none of.
  for (uint64_t flags : {1, 8}) {
    CUgraphExec other = graph.instantiate(flags);
    until_parts(other, stream);
    destroyed(other);
  }
  destroyed(exec);
}

// However many instances there are, all parts together leave room in the table of lengths.
TEST_F(SplitChanges, PartsAreBounded) {
  Graph graph;
  graph.spin(1'000'000);
  for (int i = 0; i < 80; ++i) graph.set(word(0), 1);
  graph.spin(1'000'000);
  std::vector<CUgraphExec> all;
  uint64_t before = calls("cuGraphInstantiateWithFlags");
  fake->page->split_ns = 1000;  // as many parts as can be
  for (int i = 0; i < 20; ++i) {
    all.push_back(graph.instantiate());
    for (int round = 0; round < 4; ++round) {
      EXPECT_LE(launches_of(all.back(), stream), 64u);
      finish(stream);
    }
  }
  uint64_t made = calls("cuGraphInstantiateWithFlags") - before - 20;
  EXPECT_GE(made, 512u);
  EXPECT_LE(made, 1024u);
  for (CUgraphExec exec : all) destroyed(exec);
  CUgraphExec again = graph.instantiate();
  until_parts(again, stream);  // there is room again
  destroyed(again);
}

// With an error at some call on the way (BERTH_SIM_FAULTS; without any this is the plain case). Results are right, nothing of
// ours is left behind, and every launch of the program has succeeded; but if the driver fails behind the first part of one, which
// it has no reason for, that launch has failed.
class SplitFaults : public SplitChanges {};
TEST_F(SplitFaults, AFaultLeavesTheLaunchWhole) {
  const char* given = getenv("BERTH_SIM_FAULTS");
  std::string fault = given ? given : "";
  bool in_the_middle = fault == "cuGraphLaunch:2@4", later = fault.starts_with("cuGraphExec") && !fault.starts_with("cuGraphExecGet");
  uint64_t made = calls("cuGraphCreate") + calls("cuGraphClone"), gone = calls("cuGraphDestroy");
  uint64_t instances = calls("cuGraphInstantiateWithFlags"), ended = calls("cuGraphExecDestroy");
  {
    Graph graph;
    count_up(graph, 5'000'000);  // long beside whatever keeps this thread from its launch: known after the first one
    CUgraphExec exec = graph.instantiate();
    int failed = 0;
    for (int i = 0; i < 12; ++i) {
      failed += D(cuGraphLaunch)(exec, stream) != CUDA_SUCCESS;
      finish(stream);
    }
    EXPECT_EQ(failed, in_the_middle ? 1 : 0);
    EXPECT_EQ(number(0), 12 - failed);
    if (given && !later) expect_launches(exec, 1);
    else EXPECT_GT(launches_of(exec, stream), 1u);
    finish(stream);
    destroyed(exec);
  }
  // A call that was made to fail has made nothing.
  uint64_t no_graph = fault.starts_with("cuGraphClone"), no_instance = fault.starts_with("cuGraphInstantiate");
  EXPECT_EQ(calls("cuGraphDestroy") - gone, calls("cuGraphCreate") + calls("cuGraphClone") - made - no_graph);
  EXPECT_EQ(calls("cuGraphExecDestroy") - ended, calls("cuGraphInstantiateWithFlags") - instances - no_instance);
}

// The driver has changed the program's instance and does not change the part.
TEST_F(SplitFaults, AChangeThatAPartDoesNotTakeEndsTheSplit) {
  const char* given = getenv("BERTH_SIM_FAULTS");
  bool refused = given && std::string(given).starts_with("cuGraphExecMemset");
  Graph graph;
  CUgraphNode set = graph.set(word(0), 1);
  for (int i = 0; i < 4; ++i) graph.spin();
  CUgraphExec exec = graph.instantiate();
  until_parts(exec, stream);
  CUDA_MEMSET_NODE_PARAMS other{word(0), 0, kOne, 4, 1, 1};
  EXPECT_EQ(D(cuGraphExecMemsetNodeSetParams)(exec, set, &other, context), CUDA_SUCCESS);
  EXPECT_EQ(launches_of(exec, stream) > 1, !refused);
  finish(stream);
  EXPECT_EQ(number(0), 1.0f);
  destroyed(exec);
}

}  // namespace berth
