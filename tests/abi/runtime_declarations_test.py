#!/usr/bin/env python3
"""Compares src/abi/runtime.symbols, runtime_types.h and runtime_api.h with a CUDA runtime that is installed:
COMPILER INCLUDE_FOLDER SOURCE_FOLDER [SHARED_RUNTIME]

Every function that its headers or its library name must be in our list, none that has a device in its signature may be `pass`,
and sizes, offsets and parameters must agree."""
import os
import re
import subprocess
import sys
import tempfile

compiler, include, source = sys.argv[1:4]
faults = []
rows = dict(l.split() for l in open(f"{source}/abi/runtime.symbols") if l.strip() and not l.startswith("#"))
api = open(f"{source}/abi/runtime_api.h").read()


def read(path):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", open(path).read(), flags=re.S)


# Names. `X_ptsz` and `X_ptds` are in the library alone, as are those that its own tools call.
declared = {}
for header in ("cuda_runtime_api.h", "cuda_gl_interop.h", "cuda_vdpau_interop.h", "cuda_egl_interop.h"):
    if os.path.exists(f"{include}/{header}"):
        for name, arguments in re.findall(r"extern\b[^;{]*?\bcudaError_t\s+CUDARTAPI\s+(cuda\w+)\s*\(([^;{]*?)\)\s*;", read(f"{include}/{header}"), re.S):
            declared.setdefault(name, re.sub(r"\s+", " ", arguments))
if len(sys.argv) > 4:
    table = subprocess.run(["readelf", "--dyn-syms", "-W", sys.argv[4]], check=True, capture_output=True, text=True).stdout
    exported = {w[7].split("@")[0] for w in map(str.split, table.splitlines()) if len(w) > 7 and w[3] == "FUNC" and w[6] != "UND"}
    faults += [f"the runtime exports {n}, which runtime.symbols lacks" for n in sorted(exported - set(rows)) if n.startswith("cuda")]
    if not {"cudaMalloc", "cudaSetDevice"} <= exported:
        faults.append(f"{sys.argv[4]} is no CUDA runtime")
# Static ones only, or of the device's own side.
faults += [f"the headers declare {n}, which runtime.symbols lacks" for n in sorted(set(declared) - set(rows)) if len(sys.argv) <= 4 or n in exported]

# Holes: a device, or something with one in it, is handed in or comes back.
device = re.compile(r"\bint\s*\*?\s*(device|peerDevice|srcDevice|dstDevice|deviceOrdinal|device_arr|pCudaDevices|pciBusId)\b|"
                    r"cudaMemLocation|cudaMemPoolProps|cudaMemAccessDesc|cudaMemAllocNodeParams|cudaGraphNodeParams|cudaMemcpyAttributes|"
                    r"cudaMemcpy3DBatchOp|cudaMemcpy3DPeerParms|cudaPointerAttributes|cudaDeviceProp\b|cudaMemRangeAttribute")
for name, arguments in sorted(declared.items()):
    flavours = [f for f in (name, name + "_ptsz", name + "_ptds") if f in rows]
    if device.search(arguments):
        faults += [f"a device stands in {f}({arguments}), so it can't be {rows[f]}" for f in flavours if rows[f] in ("pass", "current")]
# The count of devices is an int* called count; what resets or leaves one says nothing at all.
for name in ("cudaGetDeviceCount", "cudaDeviceReset", "cudaThreadExit"):
    if rows.get(name) == "pass":
        faults.append(f"{name} is a device's, so it can't be pass")


# Shapes. Ours are compiled in a namespace beside NVIDIA's.
def inside(text):
    return re.sub(r'^(#.*|extern "C" \{|\}  // extern "C")$', "", text, flags=re.M)


version = int(re.search(r"#define CUDART_VERSION\s+(\d+)", read(f"{include}/cuda_runtime_api.h"))[1])
types = "".join(inside(open(f"{source}/abi/{f}").read()) for f in ("driver_types.h", "runtime_types.h"))
lines = [f"#include <cstddef>\n#include <cstdint>\n#include <type_traits>\n#include <cuda_runtime_api.h>\nnamespace ours {{\n{types}\n{inside(api)}\n}}\n"]
properties = "RuntimeDeviceProp13" if version >= 13000 else "RuntimeDeviceProp12"
members = {properties: ("cudaDeviceProp", ["name", "uuid", "luid", "totalGlobalMem", "memPitch", "totalConstMem", "multiProcessorCount", "surfaceAlignment", "pciBusID", "pciDeviceID", "pciDomainID"]),
           "cudaPointerAttributes": ("cudaPointerAttributes", ["type", "device", "devicePointer", "hostPointer"]),
           "cudaMemLocation": ("cudaMemLocation", ["type", "id"]), "cudaMemAccessDesc": ("cudaMemAccessDesc", ["location", "flags"]),
           "cudaMemPoolProps": ("cudaMemPoolProps", ["allocType", "location", "maxSize"]),
           "cudaMemAllocNodeParams": ("cudaMemAllocNodeParams", ["poolProps", "accessDescs", "accessDescCount", "bytesize", "dptr"]),
           "cudaMemcpyAttributes": ("cudaMemcpyAttributes", ["srcAccessOrder", "srcLocHint", "dstLocHint", "flags"]),
           "cudaMemcpy3DOperand": ("cudaMemcpy3DOperand", ["type", "op"]),
           "cudaMemcpy3DBatchOp": ("cudaMemcpy3DBatchOp", ["src", "dst", "extent", "srcAccessOrder", "flags"]),
           "cudaMemcpy3DPeerParms": ("cudaMemcpy3DPeerParms", ["srcArray", "srcPos", "srcPtr", "srcDevice", "dstArray", "dstPos", "dstPtr", "dstDevice", "extent"]),
           "cudaGraphNodeParams": ("cudaGraphNodeParams", ["type", "alloc"])}
longer = {properties, "cudaPointerAttributes"}  # NVIDIA's have more behind what we know
checked = 0
for ours, (theirs, names) in members.items():
    if ours not in longer:
        lines.append(f'static_assert(sizeof(ours::{ours}) == sizeof(::{theirs}), "{theirs}: size");')
    for member in names:
        checked += 1
        lines.append(f'static_assert(offsetof(ours::{ours}, {member}) == offsetof(::{theirs}, {member}), "{theirs}.{member}");')
lines.append("""
template <class A, class B> constexpr bool same_shape() {
  if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>) return false;
  else return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <class F, class G> struct Compare { static constexpr bool value = false; };
template <class... A, class... B> struct Compare<ours::cudaError_t(A...), ::cudaError_t(B...)> {
  static constexpr bool value = [] { if constexpr (sizeof...(A) != sizeof...(B)) return false; else return (same_shape<A, B>() && ...); }();
};""")
both = {"cudaMemPrefetchAsync", "cudaMemAdvise", "cudaMemcpyBatchAsync", "cudaMemcpy3DBatchAsync", "cudaGraphAddNode"}  # as 12 and as 13 have them
runtime_header = read(f"{include}/cuda_runtime_api.h")
for name in re.findall(r"^cudaError_t (\w+)\(", api, re.M):
    if name not in both and re.search(rf"\b{name}\s*\(", runtime_header) and name in declared:
        checked += 1
        lines.append(f'static_assert(Compare<decltype(ours::{name}), decltype(::{name})>::value, "{name}: parameters");')
for value, code in re.findall(r"(cuda(?:Success|Error)\w*) = (\d+),", types):
    checked += 1
    lines.append(f'static_assert(static_cast<int>(::{value}) == {code}, "{value}");')
for ours, theirs in (("kMemLocationDevice", "cudaMemLocationTypeDevice"), ("kGraphNodeMemAlloc", "cudaGraphNodeTypeMemAlloc"),
                     ("kMemcpyOperandPointer", "cudaMemcpyOperandTypePointer"), ("kDeviceAttrPciBusId", "cudaDevAttrPciBusId"),
                     ("kDeviceAttrPciDeviceId", "cudaDevAttrPciDeviceId"), ("kDeviceAttrPciDomainId", "cudaDevAttrPciDomainId"),
                     ("kMemRangePreferredLocation", "cudaMemRangeAttributePreferredLocation"), ("kMemRangeAccessedBy", "cudaMemRangeAttributeAccessedBy"),
                     ("kMemRangeLastPrefetchLocation", "cudaMemRangeAttributeLastPrefetchLocation"),
                     ("kMemRangePreferredLocationId", "cudaMemRangeAttributePreferredLocationId"),
                     ("kMemRangeLastPrefetchLocationId", "cudaMemRangeAttributeLastPrefetchLocationId"),
                     ("kP2PPerformanceRank", "cudaDevP2PAttrPerformanceRank"), ("kP2POnlyPartialNativeAtomic", "cudaDevP2PAttrOnlyPartialHostNativeAtomicSupported")):
    if ours != "kP2POnlyPartialNativeAtomic" or theirs in open(f"{include}/driver_types.h").read():
        checked += 1
        lines.append(f'static_assert(ours::berth::abi::{ours} == static_cast<int>({theirs}), "{theirs}");')
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "compare.cpp")
    open(path, "w").write("\n".join(lines))
    run = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-w", f"-I{include}", path], capture_output=True, text=True)
if run.returncode:
    faults.append(run.stderr[:4000])
print("\n".join(faults) or f"{len(rows)} names and {checked} declarations agree with the CUDA runtime {version} of {include}")
sys.exit(bool(faults) or checked < 100 or len(declared) < 200)
