// The functions of the CUDA runtime to which it matters which device is meant, declared by ourselves from their public signatures
// (CUDA 12 and 13). The generator reads this file: one declaration a line. RuntimeDevice is an int that hands a device in; in an
// int* or a struct it may come back, which only a body knows.
//
// Where 12 and 13 differ under one name the declaration suits both: it takes what either would find in the registers, and the
// body goes by cudaRuntimeGetVersion.
#pragma once
#include "abi/runtime_types.h"

extern "C" {
cudaError_t cudaArrayGetMemoryRequirements(cudaArrayMemoryRequirements*, cudaArray_t, RuntimeDevice);
cudaError_t cudaChooseDevice(int*, const cudaDeviceProp*);
cudaError_t cudaDeviceCanAccessPeer(int*, RuntimeDevice, RuntimeDevice);
cudaError_t cudaDeviceDisablePeerAccess(RuntimeDevice);
cudaError_t cudaDeviceEnablePeerAccess(RuntimeDevice, unsigned);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, RuntimeDevice);
cudaError_t cudaDeviceGetByPCIBusId(int*, const char*);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, RuntimeDevice);
cudaError_t cudaDeviceGetDevResource(RuntimeDevice, cudaDevResource*, cudaDevResourceType);
cudaError_t cudaDeviceGetExecutionCtx(cudaExecutionContext_t*, RuntimeDevice);
cudaError_t cudaDeviceGetGraphMemAttribute(RuntimeDevice, cudaGraphMemAttributeType, void*);
cudaError_t cudaDeviceGetHostAtomicCapabilities(unsigned*, const cudaAtomicOperation*, unsigned, RuntimeDevice);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t*, RuntimeDevice);
cudaError_t cudaDeviceGetNvSciSyncAttributes(void*, RuntimeDevice, int);
cudaError_t cudaDeviceGetP2PAtomicCapabilities(unsigned*, const cudaAtomicOperation*, unsigned, RuntimeDevice, RuntimeDevice);
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, RuntimeDevice, RuntimeDevice);
cudaError_t cudaDeviceGetPCIBusId(char*, int, RuntimeDevice);
cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t*, const cudaChannelFormatDesc*, RuntimeDevice);
cudaError_t cudaDeviceGraphMemTrim(RuntimeDevice);
cudaError_t cudaDeviceRegisterAsyncNotification(RuntimeDevice, cudaAsyncCallback, void*, cudaAsyncCallbackHandle_t*);
cudaError_t cudaDeviceReset();
cudaError_t cudaDeviceSetGraphMemAttribute(RuntimeDevice, cudaGraphMemAttributeType, void*);
cudaError_t cudaDeviceSetMemPool(RuntimeDevice, cudaMemPool_t);
cudaError_t cudaDeviceUnregisterAsyncNotification(RuntimeDevice, cudaAsyncCallbackHandle_t);
cudaError_t cudaExecutionCtxGetDevice(int*, cudaExecutionContext_t);
cudaError_t cudaGLGetDevices(unsigned*, int*, unsigned, cudaGLDeviceList);
cudaError_t cudaGLSetGLDevice(RuntimeDevice);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, RuntimeDevice);
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp*, RuntimeDevice);
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, cudaMemAllocNodeParams*);
cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const void*, size_t, cudaGraphNodeParams*);
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const void*, size_t, cudaGraphNodeParams*);
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t, cudaGraphNode_t, cudaGraphNodeParams*);
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t, cudaMemAllocNodeParams*);
cudaError_t cudaGraphNodeGetParams(cudaGraphNode_t, cudaGraphNodeParams*);
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t, cudaGraphNodeParams*);
cudaError_t cudaGreenCtxCreate(cudaExecutionContext_t*, cudaDevResourceDesc_t, RuntimeDevice, unsigned);
cudaError_t cudaInitDevice(RuntimeDevice, unsigned, unsigned);
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, RuntimeDevice);
cudaError_t cudaMalloc(void**, size_t);
cudaError_t cudaMalloc3D(void*, cudaExtent);
cudaError_t cudaMalloc3DArray(cudaArray_t*, const cudaChannelFormatDesc*, cudaExtent, unsigned);
cudaError_t cudaMallocArray(cudaArray_t*, const cudaChannelFormatDesc*, size_t, size_t, unsigned);
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t);
cudaError_t cudaMallocAsync_ptsz(void**, size_t, cudaStream_t);
cudaError_t cudaMallocManaged(void**, size_t, unsigned);
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t*, const cudaChannelFormatDesc*, cudaExtent, unsigned, unsigned);
cudaError_t cudaMallocPitch(void**, size_t*, size_t, size_t);
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, RuntimePlace);
cudaError_t cudaMemAdvise_v2(const void*, size_t, cudaMemoryAdvise, RuntimePlace);
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void**, size_t*, size_t, cudaMemLocation*, size_t*, size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemDiscardAndPrefetchBatchAsync_ptsz(void**, size_t*, size_t, cudaMemLocation*, size_t*, size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t*, cudaMemLocation*, cudaMemAllocationType);
cudaError_t cudaMemGetInfo(size_t*, size_t*);
cudaError_t cudaMemGetMemPool(cudaMemPool_t*, cudaMemLocation*, cudaMemAllocationType);
cudaError_t cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*);
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags*, cudaMemPool_t, cudaMemLocation*);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t);
cudaError_t cudaMemPrefetchAsync(const void*, size_t, RuntimePlace, uint64_t, cudaStream_t);
cudaError_t cudaMemPrefetchAsync_ptsz(const void*, size_t, RuntimePlace, uint64_t, cudaStream_t);
cudaError_t cudaMemPrefetchAsync_v2(const void*, size_t, RuntimePlace, unsigned, cudaStream_t);
cudaError_t cudaMemPrefetchAsync_v2_ptsz(const void*, size_t, RuntimePlace, unsigned, cudaStream_t);
cudaError_t cudaMemPrefetchBatchAsync(void**, size_t*, size_t, cudaMemLocation*, size_t*, size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemPrefetchBatchAsync_ptsz(void**, size_t*, size_t, cudaMemLocation*, size_t*, size_t, unsigned long long, cudaStream_t);
cudaError_t cudaMemRangeGetAttribute(void*, size_t, cudaMemRangeAttribute, const void*, size_t);
cudaError_t cudaMemRangeGetAttributes(void**, size_t*, cudaMemRangeAttribute*, size_t, const void*, size_t);
cudaError_t cudaMemSetMemPool(cudaMemLocation*, cudaMemAllocationType, cudaMemPool_t);
cudaError_t cudaMemcpy3DBatchAsync(size_t, cudaMemcpy3DBatchOp*, uint64_t, uint64_t, uint64_t);
cudaError_t cudaMemcpy3DBatchAsync_ptsz(size_t, cudaMemcpy3DBatchOp*, uint64_t, uint64_t, uint64_t);
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms*);
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms*, cudaStream_t);
cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms*, cudaStream_t);
cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms*);
cudaError_t cudaMemcpy3DWithAttributesAsync(cudaMemcpy3DBatchOp*, unsigned long long, cudaStream_t);
cudaError_t cudaMemcpy3DWithAttributesAsync_ptsz(cudaMemcpy3DBatchOp*, unsigned long long, cudaStream_t);
cudaError_t cudaMemcpyBatchAsync(void**, const void**, const size_t*, size_t, cudaMemcpyAttributes*, size_t*, size_t, uint64_t, uint64_t);
cudaError_t cudaMemcpyBatchAsync_ptsz(void**, const void**, const size_t*, size_t, cudaMemcpyAttributes*, size_t*, size_t, uint64_t, uint64_t);
cudaError_t cudaMemcpyPeer(void*, RuntimeDevice, const void*, RuntimeDevice, size_t);
cudaError_t cudaMemcpyPeerAsync(void*, RuntimeDevice, const void*, RuntimeDevice, size_t, cudaStream_t);
cudaError_t cudaMemcpyWithAttributesAsync(void*, const void*, size_t, cudaMemcpyAttributes*, cudaStream_t);
cudaError_t cudaMemcpyWithAttributesAsync_ptsz(void*, const void*, size_t, cudaMemcpyAttributes*, cudaStream_t);
cudaError_t cudaMipmappedArrayGetMemoryRequirements(cudaArrayMemoryRequirements*, cudaMipmappedArray_t, RuntimeDevice);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);
cudaError_t cudaSetDevice(RuntimeDevice);
cudaError_t cudaSetValidDevices(int*, int);
cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int);
cudaError_t cudaStreamGetDevice(cudaStream_t, int*);
cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t, int*);
cudaError_t cudaThreadExit();
cudaError_t cudaVDPAUGetDevice(int*, VdpDevice, VdpGetProcAddress*);
cudaError_t cudaVDPAUSetVDPAUDevice(RuntimeDevice, VdpDevice, VdpGetProcAddress*);
}  // extern "C"
