// A program of the CUDA runtime: memory by three doors, a kernel, properties. Built with the static and the shared runtime.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void twice_plus_one(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 2 + 1;
}

int main() {
  cudaDeviceProp properties;
  size_t free, total;
  int r1 = cudaGetDeviceProperties(&properties, 0), r2 = cudaMemGetInfo(&free, &total);
  std::printf("properties %d, info %d, totals agree %d\n", r1, r2, properties.totalGlobalMem == total);
  std::fprintf(stderr, "total %zu\n", total);
  const int n = 1 << 20;
  float *a, *b, *c, first;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int codes[] = {cudaMalloc(&a, n * 4), cudaMallocAsync(&b, n * 4, stream), cudaMallocManaged(&c, n * 4)};
  for (float* x : {a, b, c}) {
    cudaMemsetAsync(x, 0, n * 4, stream);
    for (int i = 0; i < 10; ++i) twice_plus_one<<<n / 256, 256, 0, stream>>>(x, n);
    cudaMemcpyAsync(&first, x, 4, cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    std::printf("first %.0f\n", first);
  }
  cudaFree(a), cudaFreeAsync(b, stream), cudaFree(c);
  std::printf("codes %d %d %d, last %d\n", codes[0], codes[1], codes[2], cudaDeviceSynchronize());
  void* too_much;
  std::printf("too much: %d\n", cudaMalloc(&too_much, 1ull << 42));
  return 0;
}
