// How to take memory through each row of class alloc, and how to give it back; for doors_test.cpp, whose shim they call.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "abi/driver_api.h"
#include "support/shim_entry.h"

namespace berth::test {

#define AS(name) reinterpret_cast<decltype(&::name)>(row)

struct Door {
  std::function<CUresult(void* row)> take;  // calls the row's entry
  std::function<void()> give_back;
  bool stays_after = false;  // pools and graph memory: the driver keeps it until trimmed, and give_back trims
};

inline struct Held {
  CUdeviceptr pointer = 0;
  CUdeviceptr_v1 pointer_v1 = 0;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUmemoryPool pool = nullptr;
} held;

inline CUgraph graph_with_memory() {
  CUgraph graph;
  D(cuGraphCreate)(&graph, 0);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = 1;
  params.poolProps.location = {1, 0};
  params.bytesize = 40 << 20;
  CUgraphNode alloc, free;
  EXPECT_EQ(D(cuGraphAddMemAllocNode)(&alloc, graph, nullptr, 0, &params), CUDA_SUCCESS);
  EXPECT_EQ(D(cuGraphAddMemFreeNode)(&free, graph, &alloc, 1, params.dptr), CUDA_SUCCESS);
  return graph;
}

inline void free_pointer() { EXPECT_EQ(D(cuMemFree_v2)(held.pointer), CUDA_SUCCESS); }
inline void drop_graph() {
  if (held.exec) {
    EXPECT_EQ(D(cuGraphExecDestroy)(held.exec), CUDA_SUCCESS);
  }
  if (held.graph) {
    EXPECT_EQ(D(cuGraphDestroy)(held.graph), CUDA_SUCCESS);
  }
  held.exec = nullptr;
  held.graph = nullptr;
}

// By the body's name, which the flavours share.
inline std::map<std::string, Door> doors() {
  static CUDA_ARRAY_DESCRIPTOR two{512, 512, 0x20, 4};
  static CUDA_ARRAY_DESCRIPTOR_v1 two_v1{512, 512, 0x20, 4};
  static CUDA_ARRAY3D_DESCRIPTOR three{64, 64, 64, 0x20, 4, 0};
  static CUDA_ARRAY3D_DESCRIPTOR_v1 three_v1{64, 64, 64, 0x20, 4, 0};
  static CUmemAllocationProp properties{1, 0, {1, 0}, nullptr, {}};
  constexpr size_t k8M = 8 << 20;
  auto free_array = [] { EXPECT_EQ(D(cuArrayDestroy)(held.array), CUDA_SUCCESS); };
  auto free_async = [] {
    EXPECT_EQ(D(cuMemFreeAsync)(held.pointer, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(D(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
  };
  std::map<std::string, Door> all;
  all["cuMemAlloc_v2"] = {[](void* row) { return AS(cuMemAlloc_v2)(&held.pointer, k8M); }, free_pointer};
  all["cuMemAllocPitch_v2"] = {[](void* row) { size_t pitch; return AS(cuMemAllocPitch_v2)(&held.pointer, &pitch, 1000, 8192, 4); }, free_pointer};
  all["cuMemAllocManaged"] = {[](void* row) { return AS(cuMemAllocManaged)(&held.pointer, k8M, 1); }, free_pointer};
  all["cuMemAlloc"] = {[](void* row) { return AS(cuMemAlloc)(&held.pointer_v1, k8M); }, [] { D(cuMemFree)(held.pointer_v1); }};
  all["cuMemAllocPitch"] = {[](void* row) { unsigned pitch; return AS(cuMemAllocPitch)(&held.pointer_v1, &pitch, 1000, 8192, 4); }, [] { D(cuMemFree)(held.pointer_v1); }};
  all["cuMemAllocAsync"] = {[](void* row) { return AS(cuMemAllocAsync)(&held.pointer, k8M, nullptr); }, free_async};
  all["cuMemAllocFromPoolAsync"] = {[](void* row) { return AS(cuMemAllocFromPoolAsync)(&held.pointer, k8M, held.pool, nullptr); }, free_async};
  all["cuMemCreate"] = {[](void* row) { return AS(cuMemCreate)(&held.handle, k8M, &properties, 0); }, [] { EXPECT_EQ(D(cuMemRelease)(held.handle), CUDA_SUCCESS); }};
  all["cuArrayCreate_v2"] = {[](void* row) { return AS(cuArrayCreate_v2)(&held.array, &two); }, free_array};
  all["cuArrayCreate"] = {[](void* row) { return AS(cuArrayCreate)(&held.array, &two_v1); }, free_array};
  all["cuArray3DCreate_v2"] = {[](void* row) { return AS(cuArray3DCreate_v2)(&held.array, &three); }, free_array};
  all["cuArray3DCreate"] = {[](void* row) { return AS(cuArray3DCreate)(&held.array, &three_v1); }, free_array};
  all["cuMipmappedArrayCreate"] = {[](void* row) { return AS(cuMipmappedArrayCreate)(&held.mipmap, &three, 3); }, [] { EXPECT_EQ(D(cuMipmappedArrayDestroy)(held.mipmap), CUDA_SUCCESS); }};
  all["cuGraphInstantiate"] = {[](void* row) { held.graph = graph_with_memory(); return AS(cuGraphInstantiate)(&held.exec, held.graph, nullptr, nullptr, 0); }, drop_graph};
  all["cuGraphInstantiate_v2"] = {[](void* row) { held.graph = graph_with_memory(); return AS(cuGraphInstantiate_v2)(&held.exec, held.graph, nullptr, nullptr, 0); }, drop_graph};
  all["cuGraphInstantiateWithFlags"] = {[](void* row) { held.graph = graph_with_memory(); return AS(cuGraphInstantiateWithFlags)(&held.exec, held.graph, 0); }, drop_graph};
  all["cuGraphInstantiateWithParams"] = {[](void* row) { held.graph = graph_with_memory(); static CUDA_GRAPH_INSTANTIATE_PARAMS p{}; return AS(cuGraphInstantiateWithParams)(&held.exec, held.graph, &p); }, drop_graph};
  return all;
}

// Rows that take memory but are never refused for it, each with the reason. Contexts have tests of their own.
inline const std::map<std::string, const char*> kNeverRefused = {
    {"cuModuleLoad", "modules are counted after the fact, through NVML"},
    {"cuModuleLoadData", "modules"},
    {"cuModuleLoadDataEx", "modules"},
    {"cuModuleLoadFatBinary", "modules"},
    {"cuLibraryLoadData", "modules"},
    {"cuLibraryLoadFromFile", "modules"},
    {"cuImportExternalMemory", "imports are charged to the exporter"},
    {"cuIpcOpenMemHandle", "imports"},
    {"cuIpcOpenMemHandle_v2", "imports"},
    {"cuMemImportFromShareableHandle", "imports"},
    {"cuMemPoolImportFromShareableHandle", "imports"},
    {"cuMemPoolImportPointer", "imports"},
    {"cuMemPoolCreate", "a pool takes memory when it first serves"},
    {"cuCtxCreate", "contexts: the daemon decides by the learned cost"},
    {"cuCtxCreate_v2", "contexts"},
    {"cuCtxCreate_v3", "contexts"},
    {"cuCtxCreate_v4", "contexts"},
    {"cuGLCtxCreate", "contexts"},
    {"cuGLCtxCreate_v2", "contexts"},
    {"cuVDPAUCtxCreate", "contexts"},
    {"cuVDPAUCtxCreate_v2", "contexts"},
    {"cuDevicePrimaryCtxRetain", "contexts"},
    {"cuGreenCtxCreate", "a part of the primary context"},
    {"cuCtxSetLimit", "has its own test"},
};
// Forms that the driver itself refuses on a 64-bit machine.
inline bool driver_refuses(const std::string& body) { return body == "cuMemAlloc" || body == "cuMemAllocPitch"; }

#undef AS

}  // namespace berth::test
