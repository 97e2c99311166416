// What the tests' runtime (fake_runtime.cpp) has besides the functions of abi/runtime_api.h, and what it has seen.
#pragma once
#include "abi/runtime_api.h"

extern "C" {
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaFree(void*);
cudaError_t cudaMemset(void*, int, size_t);
cudaError_t cudaMemcpy(void*, const void*, size_t, int);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaMallocFromPoolAsync(void**, size_t, cudaMemPool_t, cudaStream_t);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
cudaError_t cudaGraphCreate(cudaGraph_t*, unsigned);
cudaError_t cudaGraphDestroy(cudaGraph_t);

// The runtime's own view: devices that it has found, the last that it was handed, and by which function it was asked last
// where the driver has nothing to do.
int fake_runtime_cards();
int fake_runtime_handed(int back);  // 0: the last device handed in, 1: the one before
void fake_runtime_uuid(int card, unsigned char* bytes);
}
