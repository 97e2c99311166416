#!/usr/bin/env python3
"""Compares src/abi/driver_types.h and driver_api.h with the cuda.h that is installed: COMPILER CUDA_H SOURCE_FOLDER

Ours are compiled in a namespace beside NVIDIA's; sizes, offsets of members and the shape of every parameter must agree."""
import os
import re
import subprocess
import sys
import tempfile

compiler, cuda_h, source = sys.argv[1:4]
types = open(os.path.join(source, "abi/driver_types.h")).read()
api = open(os.path.join(source, "abi/driver_api.h")).read()


def inside(text):  # without includes, pragma and extern "C": it goes into a namespace
    return re.sub(r'^(#.*|extern "C" \{|\}  // extern "C")$', "", text, flags=re.M)


structs = {}
for match in re.finditer(r"^struct (\w+) \{(?:([^\n]+)|\n(.*?)\n)\};$", types, re.M | re.S):
    name, body = match[1], match[2] or match[3]
    body = re.sub(r"//.*", "", body)
    body = re.sub(r"union \{([^{}]*)\};", r"\1", body)  # of a union without a name: its members are the struct's
    flat = re.sub(r"(union|struct) \{[^{}]*(\{[^{}]*\}[^{}]*)*\} ", "int ", body)
    members = []
    for declaration in flat.split(";"):
        words = declaration.replace("*", " ").split()
        if len(words) >= 2:
            members += [re.sub(r"\[.*\]", "", w).strip() for w in re.sub(r"^\s*(const\s+)?(unsigned\s+)?(long\s+)?\w+[\s*]+", "", declaration.strip()).replace("*", "").split(",")]
    structs[name] = members
newer = {"CUDA_ARRAY_DESCRIPTOR_v1", "CUDA_ARRAY3D_DESCRIPTOR_v1", "CUDA_KERNEL_NODE_PARAMS_v1"}  # cuda.h hides them by default
rename = {"CUDA_KERNEL_NODE_PARAMS": "CUDA_KERNEL_NODE_PARAMS_v2", "CUlaunchAttribute": "CUlaunchAttribute"}
lines = [f'#define __CUDA_API_VERSION_INTERNAL\n#include "{cuda_h}"\n#include <cstddef>\n#include <cstdint>\n#include <type_traits>\n'
         f"namespace ours {{\n{inside(types)}\n{inside(api)}\n}}\n"]
checked = 0
for name, members in structs.items():
    theirs = rename.get(name, name)
    lines.append(f'static_assert(sizeof(ours::{name}) == sizeof(::{theirs}), "{name}: size");')
    for member in members:
        if name == "CUlaunchAttribute" and member == "pad":
            continue
        checked += 1
        lines.append(f'static_assert(offsetof(ours::{name}, {member}) == offsetof(::{theirs}, {member}), "{name}.{member}");')
lines.append("""
template <class A, class B> constexpr bool same_shape() {
  if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>) return false;
  else return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <class F, class G> struct Compare { static constexpr bool value = false; };
template <class... A, class... B> struct Compare<ours::CUresult(A...), ::CUresult(B...)> {
  static constexpr bool value = [] { if constexpr (sizeof...(A) != sizeof...(B)) return false; else return (same_shape<A, B>() && ...); }();
};""")
declared = set(re.findall(r"\b(cu\w+)\s*\(", re.sub(r"/\*.*?\*/", "", open(cuda_h).read(), flags=re.S)))
for name in re.findall(r"^CUresult (\w+)\(", api, re.M):
    if name in declared:
        checked += 1
        lines.append(f'static_assert(Compare<decltype(ours::{name}), decltype(::{name})>::value, "{name}: parameters");')
# A function in whose signature a device stands belongs to the virtual devices, which know it by its declaration.
ours_declared = set(re.findall(r"^CUresult (\w+)\(", api, re.M))
device = r"\bCUdevice\b|CUmemLocation|CUmemPoolProps|CUmemAllocationProp\b|CUmemAccessDesc|CUDA_MEM_ALLOC_NODE_PARAMS|CUgraphNodeParams|CUmemcpyAttributes|CUDA_MEMCPY3D_BATCH_OP"
clean = re.sub(r"/\*.*?\*/", "", re.sub(r"//.*", "", open(cuda_h).read()), flags=re.S)
holes = sorted({name for name, arguments in re.findall(r"\bCUDAAPI\s+(cu\w+)\s*\(([^;{]*?)\)\s*;", clean, re.S)
                if re.search(device, arguments) and name not in ours_declared})
if holes:
    sys.exit("a device stands in the signature of " + ", ".join(holes) + ": declare them in src/abi/driver_api.h")
for ours, theirs in (("kLimitStackSize", "CU_LIMIT_STACK_SIZE"), ("kMemLocationDevice", "CU_MEM_LOCATION_TYPE_DEVICE"),
                     ("kMemPoolAttrReservedCurrent", "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT"), ("kMemPoolAttrUsedCurrent", "CU_MEMPOOL_ATTR_USED_MEM_CURRENT"),
                     ("kMemPoolAttrReleaseThreshold", "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD"), ("kGraphMemAttrReservedCurrent", "CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT"),
                     ("kGraphMemAttrUsedCurrent", "CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT"), ("kGraphNodeMemAlloc", "CU_GRAPH_NODE_TYPE_MEM_ALLOC"),
                     ("kGraphNodeChildGraph", "CU_GRAPH_NODE_TYPE_GRAPH"), ("kGraphNodeConditional", "CU_GRAPH_NODE_TYPE_CONDITIONAL"),
                     ("kCaptureModeRelaxed", "CU_STREAM_CAPTURE_MODE_RELAXED"), ("kDeviceAttrPciBusId", "CU_DEVICE_ATTRIBUTE_PCI_BUS_ID"), ("kDeviceAttrPciDeviceId", "CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID"),
                     ("kDeviceAttrPciDomainId", "CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID"), ("kPointerContext", "CU_POINTER_ATTRIBUTE_CONTEXT"),
                     ("kPointerDeviceOrdinal", "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL"), ("kPointerPool", "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE"), ("kP2PPerformanceRank", "CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK"),
                     ("kP2POnlyPartialNativeAtomic", "CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED"),
                     ("kMemRangePreferredLocation", "CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION"), ("kMemRangeAccessedBy", "CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY"),
                     ("kMemRangeLastPrefetchLocation", "CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION"), ("kMemAllocationPinned", "CU_MEM_ALLOCATION_TYPE_PINNED"), ("kMemcpyOperandPointer", "CU_MEMCPY_OPERAND_TYPE_POINTER"),
                     ("kDeviceAttrComputeMode", "CU_DEVICE_ATTRIBUTE_COMPUTE_MODE"),
                     ("kGraphNodeKernel", "CU_GRAPH_NODE_TYPE_KERNEL"), ("kGraphNodeMemcpy", "CU_GRAPH_NODE_TYPE_MEMCPY"), ("kGraphNodeMemset", "CU_GRAPH_NODE_TYPE_MEMSET"),
                     ("kGraphFlagAutoFree", "CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH"), ("kGraphFlagUpload", "CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD"),
                     ("kGraphFlagUseNodePriority", "CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY"),
                     ("kKernelAttrDeviceUpdatable", "CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE"),
                     ("kEventDisableTiming", "CU_EVENT_DISABLE_TIMING"), ("kStreamNonBlocking", "CU_STREAM_NON_BLOCKING"),
                     ("kDeviceAttrMultiprocessorCount", "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"),
                     ("kDeviceAttrMaxThreadsPerMultiprocessor", "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR")):
    checked += 1
    lines.append(f'static_assert(ours::berth::abi::{ours} == static_cast<int>({theirs}), "{theirs}");')
for value, code in re.findall(r"(CUDA_\w+) = (\d+),", types):
    checked += 1
    lines.append(f'static_assert(static_cast<int>(::{value}) == {code}, "{value}");')
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "compare.cpp")
    open(path, "w").write("\n".join(lines))
    run = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-w", path], capture_output=True, text=True)
print(run.stderr[:4000] or f"{checked} declarations agree with {cuda_h}")
sys.exit(run.returncode or checked < 400)
