// The part of the CUDA driver interface's types that berth touches, declared by ourselves for driver 580 (CUDA 13.0).
// Layouts are facts of the public driver interface, and tests/abi compares every one with cuda.h where one is installed.
// Enumerations are plain integers here: the driver grows them with each release, so no value may be assumed to be known.
// Guest-safe: no functions, no static data.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_OPERATING_SYSTEM = 304,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_LOSSY_QUERY = 402,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
  CUDA_ERROR_UNKNOWN = 999,
};

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;  // the interface before CUDA 3.2: 32-bit pointers and sizes
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUlib_st* CUlibrary;
typedef struct CUkern_st* CUkernel;
typedef struct CUarray_st* CUarray;
typedef struct CUmipmappedArray_st* CUmipmappedArray;
typedef struct CUevent_st* CUevent;
typedef struct CUstream_st* CUstream;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUmemPoolHandle_st* CUmemoryPool;
typedef struct CUextMemory_st* CUexternalMemory;
typedef struct CUgreenCtx_st* CUgreenCtx;
typedef struct CUdevResourceDesc_st* CUdevResourceDesc;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned int VdpDevice;
typedef void VdpGetProcAddress;  // a function type of VDPAU that only passes through

typedef int CUdevice_attribute, CUdevice_P2PAttribute, CUfunc_cache, CUfunction_attribute, CUfunctionLoadingState,
    CUgraphExecUpdateResult, CUgraphMem_attribute, CUgraphNodeType, CUjit_option, CUkernelNodeAttrID, CUlibraryOption, CUlimit,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUmem_advise,
    CUmem_range_attribute, CUmemAccess_flags, CUmemPool_attribute, CUmoduleLoadingMode, CUpointer_attribute,
    CUstreamAttrID, CUstreamCaptureMode, CUstreamCaptureStatus, CUdriverProcAddressQueryResult, CUarray_format,
    CUmemorytype, CUexternalMemoryHandleType, CUgraphInstantiateResult;

typedef void (*CUhostFn)(void*);
typedef void (*CUstreamCallback)(CUstream, CUresult, void*);

struct CUuuid { char bytes[16]; };
struct CUipcMemHandle { char reserved[64]; };
struct CUipcEventHandle { char reserved[64]; };
struct CUmemPoolPtrExportData { unsigned char reserved[64]; };

struct CUmemLocation { CUmemLocationType type; int id; };
struct CUmemAccessDesc { CUmemLocation location; CUmemAccess_flags flags; };
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
};
struct CUmemPoolProps {
  CUmemAllocationType allocType;
  CUmemAllocationHandleType handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr;
};

// `reserved1` is where the parameters of the node's type lie: CUDA_KERNEL_NODE_PARAMS, and so on.
struct CUgraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union { long long reserved1[29]; CUDA_MEM_ALLOC_NODE_PARAMS alloc; };
  long long reserved2;
};

struct CUmemcpyAttributes { int srcAccessOrder; CUmemLocation srcLocHint, dstLocHint; unsigned flags; };
struct CUmemcpy3DOperand {
  int type;
  union {
    struct { CUdeviceptr ptr; size_t rowLength, layerHeight; CUmemLocation locHint; } ptr;
    struct { CUarray array; size_t offset[3]; } array;
  } op;
};
struct CUDA_MEMCPY3D_BATCH_OP { CUmemcpy3DOperand src, dst; size_t extent[3]; int srcAccessOrder; unsigned flags; };

struct CUDA_ARRAY_DESCRIPTOR { size_t Width, Height; CUarray_format Format; unsigned NumChannels; };
struct CUDA_ARRAY_DESCRIPTOR_v1 { unsigned Width, Height; CUarray_format Format; unsigned NumChannels; };
struct CUDA_ARRAY3D_DESCRIPTOR { size_t Width, Height, Depth; CUarray_format Format; unsigned NumChannels, Flags; };
struct CUDA_ARRAY3D_DESCRIPTOR_v1 { unsigned Width, Height, Depth; CUarray_format Format; unsigned NumChannels, Flags; };
struct CUDA_ARRAY_MEMORY_REQUIREMENTS { size_t size, alignment; unsigned reserved[4]; };

struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};
struct CUDA_MEMCPY3D {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};
struct CUDA_MEMCPY3D_PEER {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};

struct CUDA_KERNEL_NODE_PARAMS_v1 {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
};
struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};
struct CUDA_MEMSET_NODE_PARAMS { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height; };
struct CUDA_HOST_NODE_PARAMS { CUhostFn fn; void* userData; };
struct CUDA_MEMCPY_NODE_PARAMS { int flags, reserved; CUcontext copyCtx; CUDA_MEMCPY3D copyParams; };
struct CUDA_MEMSET_NODE_PARAMS_v2 { CUdeviceptr dst; size_t pitch; unsigned value, elementSize; size_t width, height; CUcontext ctx; };
struct CUgraphEdgeData { unsigned char from_port, to_port, type, reserved[5]; };
struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  uint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  CUgraphInstantiateResult result_out;
};
struct CUgraphExecUpdateResultInfo { CUgraphExecUpdateResult result; CUgraphNode errorNode, errorFromNode; };

struct CUlaunchAttribute { int id; char pad[4]; unsigned char value[64]; };
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  CUexternalMemoryHandleType type;
  union {
    int fd;
    struct { void* handle; const void* name; } win32;
    const void* nvSciBufObject;
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC { unsigned long long offset, size; unsigned flags, reserved[16]; };

struct CUctxCreateParams;         // the rest only passes through
struct CUexecAffinityParam;
union CUkernelNodeAttrValue;      // 64 bytes
union CUstreamAttrValue;
union CUstreamBatchMemOpParams;

}  // extern "C"

namespace berth::abi {
// Values of the enumerations above that berth gives a meaning to.
inline constexpr int kLimitStackSize = 0x00, kLimitPrintfFifoSize = 0x01, kLimitMallocHeapSize = 0x02;
inline constexpr int kMemLocationDevice = 1;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kMemPoolAttrReleaseThreshold = 4, kMemPoolAttrReservedCurrent = 5, kMemPoolAttrUsedCurrent = 7;
inline constexpr int kGraphMemAttrUsedCurrent = 0, kGraphMemAttrReservedCurrent = 2;
inline constexpr int kGraphNodeKernel = 0, kGraphNodeMemcpy = 1, kGraphNodeMemset = 2;
inline constexpr int kGraphNodeChildGraph = 4, kGraphNodeMemAlloc = 10, kGraphNodeConditional = 13;
inline constexpr int kDeviceAttrPciBusId = 33, kDeviceAttrPciDeviceId = 34, kDeviceAttrPciDomainId = 50;
inline constexpr int kPointerContext = 1, kPointerDeviceOrdinal = 9, kPointerPool = 17;
inline constexpr int kP2PPerformanceRank = 1, kP2POnlyPartialNativeAtomic = 5;
inline constexpr int kMemRangePreferredLocation = 2, kMemRangeAccessedBy = 3, kMemRangeLastPrefetchLocation = 4;
inline constexpr int kMemAllocationPinned = 1;
inline constexpr int kMemcpyOperandPointer = 1;
inline constexpr int kDeviceAttrComputeMode = 20;
inline constexpr uint64_t kGraphFlagAutoFree = 1, kGraphFlagUpload = 2, kGraphFlagUseNodePriority = 8;
inline constexpr int kKernelAttrDeviceUpdatable = 13;
inline constexpr unsigned kEventDisableTiming = 2, kStreamNonBlocking = 1;
inline constexpr int kDeviceAttrMultiprocessorCount = 16, kDeviceAttrMaxThreadsPerMultiprocessor = 39;
}  // namespace berth::abi
