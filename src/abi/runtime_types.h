// The part of the CUDA runtime's types in which devices stand, declared by ourselves for the runtimes of CUDA 12 and 13. Where
// NVIDIA documents a type as the driver's own it is the driver's here, too. tests/abi compares with cuda_runtime_api.h where one
// is installed. Guest-safe: no functions, no static data.
#pragma once
#include "abi/driver_types.h"

extern "C" {

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidDevice = 101,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorNotSupported = 801,
};

// A device that is handed in: the generator replaces it by its card.
typedef int RuntimeDevice;
// Up to CUDA 12 a device, later a location by value: one register either way, with nothing certain in its upper half if a device.
typedef uint64_t RuntimePlace;

typedef CUstream cudaStream_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUkernel cudaKernel_t;
typedef struct cudaArray* cudaArray_t;
typedef struct cudaMipmappedArray* cudaMipmappedArray_t;
typedef struct cudaExecutionContext_st* cudaExecutionContext_t;
typedef struct cudaDevResourceDesc_st* cudaDevResourceDesc_t;
typedef struct cudaAsyncCallbackEntry* cudaAsyncCallbackHandle_t;
typedef void (*cudaAsyncCallback)(void*, void*, cudaAsyncCallbackHandle_t);

typedef int cudaAtomicOperation, cudaDeviceAttr, cudaDeviceP2PAttr, cudaDevResourceType, cudaFuncAttribute, cudaGLDeviceList,
    cudaGraphMemAttributeType, cudaMemAccessFlags, cudaMemAllocationType, cudaMemoryAdvise, cudaMemRangeAttribute;

typedef CUmemLocation cudaMemLocation;
typedef CUmemAccessDesc cudaMemAccessDesc;
typedef CUmemPoolProps cudaMemPoolProps;
typedef CUDA_MEM_ALLOC_NODE_PARAMS cudaMemAllocNodeParams;
typedef CUgraphNodeParams cudaGraphNodeParams;
typedef CUmemcpyAttributes cudaMemcpyAttributes;
typedef CUmemcpy3DOperand cudaMemcpy3DOperand;
typedef CUDA_MEMCPY3D_BATCH_OP cudaMemcpy3DBatchOp;

struct cudaExtent { size_t width, height, depth; };
struct cudaPointerAttributes { int type, device; void *devicePointer, *hostPointer; };  // CUDA 13 has more behind
struct cudaMemcpy3DPeerParms {
  cudaArray_t srcArray;
  size_t srcPos[3];
  struct { void* ptr; size_t pitch, xsize, ysize; } srcPtr;
  int srcDevice;
  cudaArray_t dstArray;
  size_t dstPos[3];
  struct { void* ptr; size_t pitch, xsize, ysize; } dstPtr;
  int dstDevice;
  size_t extent[3];
};

// cudaDeviceProp up to the place on the bus, as the runtimes of CUDA 11 and 12 lay it out, and as that of 13 does.
struct RuntimeDeviceProp12 {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode, maxTexture1D,
      maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3],
      maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2],
      maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3],
      maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
};
struct RuntimeDeviceProp13 {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory, maxTexture1D, maxTexture1DMipmap, maxTexture2D[2],
      maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3],
      maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D,
      maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap,
      maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
};

struct cudaArrayMemoryRequirements;  // the rest only passes through
struct cudaChannelFormatDesc;
struct cudaDeviceProp;
struct cudaDevResource;

}  // extern "C"

namespace berth::abi {
inline constexpr int kMemRangePreferredLocationId = 6, kMemRangeLastPrefetchLocationId = 8;  // each follows its type
}  // namespace berth::abi
