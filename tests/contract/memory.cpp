// Contract: device memory by every door. Deltas of free memory are in units that the driver works in.
#include "sections.h"

namespace contract {

void before_init() {
  size_t value;
  int count;
  CUdeviceptr pointer;
  CUcontext context;
  CALL(cuMemGetInfo_v2, &value, &value);
  CALL(cuDeviceGetCount, &count);
  CALL(cuMemAlloc_v2, &pointer, 1024);
  CALL(cuDevicePrimaryCtxRetain, &context, 0);
  CALL(cuCtxSynchronize);
  CALL(cuStreamSynchronize, nullptr);
  CALLED("flags 1", cuInit, 1);
  CALL(cuInit, 0);
  CALLED("again", cuInit, 0);
  CALLED("no context", cuMemGetInfo_v2, &value, &value);
  CALLED("no context", cuMemAlloc_v2, &pointer, 1024);
  CALLED("no context", cuCtxSynchronize);
  CUdevice device;
  CALLED("no context", cuCtxGetDevice, &device);
  CUcontext current = reinterpret_cast<CUcontext>(1);
  CALL(cuCtxGetCurrent, &current);
  VALUE("current", current != nullptr);
  CALLED("device 99", cuDeviceGet, &device, 99);
  CALLED("device -1", cuDeviceGet, &device, -1);
  CALLED("device 99", cuDeviceTotalMem_v2, &value, 99);
}

void linear() {
  start();
  CUdeviceptr p[4] = {}, q;
  size_t free, total;
  CALLED("null free", cuMemGetInfo_v2, nullptr, &total);
  CALLED("null total", cuMemGetInfo_v2, &free, nullptr);
  CALLED("both null", cuMemGetInfo_v2, nullptr, nullptr);
  size_t device_total;
  CALL(cuDeviceTotalMem_v2, &device_total, 0);
  D(cuMemGetInfo_v2)(&free, &total);
  VALUE("totals agree", total == device_total);
  CALLED("zero bytes", cuMemAlloc_v2, &q, 0);
  CALLED("null pointer", cuMemAlloc_v2, nullptr, 4);
  CALLED("an exabyte", cuMemAlloc_v2, &q, size_t{1} << 60);
  CALLED("all ones", cuMemAlloc_v2, &q, ~size_t{0});
  CALLED("null", cuMemFree_v2, 0);
  CALLED("not a pointer", cuMemFree_v2, 0x1234);
  for (size_t bytes : {size_t{1}, size_t{512}, size_t{4096}, size_t{65536}, size_t{524288}, size_t{1048575}, size_t{1048576},
                       size_t{1048577}, size_t{2097152}, size_t{2097153}, size_t{3} << 20, size_t{33} << 20, (size_t{33} << 20) + 1}) {
    size_t before = free_bytes(), taken[4];
    for (int i = 0; i < 4; ++i) {
      D(cuMemAlloc_v2)(&p[i], bytes);
      taken[i] = before - free_bytes();
    }
    std::printf("4 x %zu bytes take %zu %zu %zu %zu MiB", bytes, taken[0] >> 20, taken[1] >> 20, taken[2] >> 20, taken[3] >> 20);
    for (int i = 0; i < 4; ++i) D(cuMemFree_v2)(p[i]);
    std::printf(", left %zu\n", before - free_bytes());
  }
  CALL(cuMemAlloc_v2, &q, 1 << 20);
  CUdeviceptr base;
  size_t size;
  CALL(cuMemGetAddressRange_v2, &base, &size, q + 100);
  VALUE("base", base == q);
  VALUE("size", size);
  CALLED("inside", cuMemFree_v2, q + 512);
  CALL(cuMemFree_v2, q);
  CALLED("twice", cuMemFree_v2, q);
  size_t pitch;
  for (size_t width : {size_t{1}, size_t{500}, size_t{512}, size_t{513}, size_t{1000}}) {
    D(cuMemAllocPitch_v2)(&q, &pitch, width, 16, 4);
    std::printf("pitch of %zu = %zu\n", width, pitch);
    D(cuMemFree_v2)(q);
  }
  CALLED("zero height", cuMemAllocPitch_v2, &q, &pitch, 100, 0, 4);
  CALLED("element 3", cuMemAllocPitch_v2, &q, &pitch, 100, 10, 3);
}

void managed() {
  start();
  size_t before = free_bytes();
  CUdeviceptr p;
  CALL(cuMemAllocManaged, &p, 16 << 20, 1);
  VALUE("taken at allocation", (before - free_bytes()) >> 20);
  unsigned is_managed = 0, type = 0;
  CALL(cuPointerGetAttribute, &is_managed, 8, p);
  VALUE("managed", is_managed);
  CALL(cuPointerGetAttribute, &type, 2, p);
  VALUE("memory type", type);
  CALLED("flags 0", cuMemAllocManaged, &p, 1 << 20, 0);
  CALLED("zero", cuMemAllocManaged, &p, 0, 1);
}

void pools() {
  start();
  CUmemoryPool pool;
  CALL(cuDeviceGetDefaultMemPool, &pool, 0);
  CUstream stream;
  CALL(cuStreamCreate, &stream, 1);
  uint64_t value = 1;
  auto attribute = [&](int which) {
    value = 0;
    D(cuMemPoolGetAttribute)(pool, which, &value);
    return value;
  };
  VALUE("release threshold", attribute(4));
  CUdeviceptr a, b, c;
  size_t before = free_bytes();
  CALL(cuMemAllocAsync, &a, 1 << 20, stream);
  VALUE("reserved MiB", attribute(5) >> 20);
  VALUE("used MiB", attribute(7) >> 20);
  VALUE("taken MiB", (before - free_bytes()) >> 20);
  CALL(cuMemAllocAsync, &b, 100 << 20, stream);
  VALUE("reserved MiB", attribute(5) >> 20);
  CALL(cuMemFreeAsync, b, stream);
  VALUE("used MiB", attribute(7) >> 20);
  VALUE("reserved MiB before the synchronisation", attribute(5) >> 20);
  CALL(cuMemAllocAsync, &b, 100 << 20, stream);
  VALUE("reserved MiB after reuse", attribute(5) >> 20);
  CALL(cuMemFreeAsync, b, stream);
  CALL(cuStreamSynchronize, stream);
  VALUE("reserved MiB after the synchronisation", attribute(5) >> 20);
  CALLED("stream-ordered memory", cuMemFree_v2, a);
  CALL(cuCtxSynchronize);
  VALUE("reserved MiB", attribute(5) >> 20);
  value = ~uint64_t{0};
  CALL(cuMemPoolSetAttribute, pool, 4, &value);
  CALL(cuMemAllocAsync, &a, 64 << 20, stream);
  CALL(cuMemFreeAsync, a, stream);
  CALL(cuStreamSynchronize, stream);
  VALUE("kept by the threshold MiB", attribute(5) >> 20);
  CALL(cuMemPoolTrimTo, pool, 0);
  VALUE("after trim MiB", attribute(5) >> 20);
  CALLED("a terabyte", cuMemAllocAsync, &c, size_t{1} << 40, stream);
  CALLED("zero", cuMemAllocAsync, &c, 0, stream);
  CALLED("null", cuMemFreeAsync, 0, stream);
  CALLED("not a pointer", cuMemFreeAsync, 0x1234, stream);
  CALL(cuMemAlloc_v2, &c, 1 << 20);
  CALLED("plain memory", cuMemFreeAsync, c, stream);
  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {1, 0};
  CUmemoryPool own;
  D(cuCtxSynchronize)();
  CALL(cuMemPoolCreate, &own, &properties);
  before = free_bytes();
  CALL(cuMemAllocFromPoolAsync, &a, 5 << 20, own, stream);
  VALUE("own pool takes MiB", (before - free_bytes()) >> 20);
  CALL(cuMemFreeAsync, a, stream);
  CALL(cuStreamSynchronize, stream);
  CALL(cuMemPoolDestroy, own);
  VALUE("left MiB", (before - free_bytes()) >> 20);
  CUmemoryPool current;
  CALL(cuDeviceGetMemPool, &current, 0);
  VALUE("default is current", current == pool);
  CALLED("default", cuMemPoolDestroy, pool);
}

void vmm() {
  start();
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {1, 0};
  size_t granularity = 0;
  CALL(cuMemGetAllocationGranularity, &granularity, &properties, 0);
  VALUE("minimum", granularity);
  CUmemGenericAllocationHandle handle, again;
  size_t before = free_bytes();
  CALL(cuMemCreate, &handle, 8 << 20, &properties, 0);
  VALUE("taken MiB", (before - free_bytes()) >> 20);
  CALLED("odd size", cuMemCreate, &again, 1000, &properties, 0);
  CALLED("zero", cuMemCreate, &again, 0, &properties, 0);
  CALLED("four terabytes", cuMemCreate, &again, size_t{1} << 42, &properties, 0);
  CUdeviceptr range;
  CALL(cuMemAddressReserve, &range, 16 << 20, 0, 0, 0);
  CALL(cuMemMap, range, 8 << 20, 0, handle, 0);
  CALLED("taken range", cuMemMap, range, 8 << 20, 0, handle, 0);
  CUmemAccessDesc access{{1, 0}, 3};
  CALL(cuMemSetAccess, range, 8 << 20, &access, 1);
  uint64_t flags = 0;
  CUmemLocation location{1, 0};
  CALL(cuMemGetAccess, &flags, &location, range);
  VALUE("access", flags);
  CALL(cuMemsetD8_v2, range, 7, 8 << 20);
  CALL(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(range));
  VALUE("same handle", again == handle);
  CALL(cuMemRelease, again);
  CALL(cuMemRelease, handle);
  VALUE("held by the map MiB", (before - free_bytes()) >> 20);
  CALLED("released", cuMemRelease, handle);
  CALLED("half", cuMemUnmap, range, 4 << 20);
  CALL(cuMemUnmap, range, 8 << 20);
  VALUE("left MiB", (before - free_bytes()) >> 20);
  CALLED("unmapped", cuMemUnmap, range, 8 << 20);
  CALL(cuMemAddressFree, range, 16 << 20);
  CALLED("no such device", cuMemCreate, &handle, 8 << 20, [&] { properties.location.id = 99; return &properties; }(), 0);
}

void arrays() {
  start();
  size_t before = free_bytes();
  CUDA_ARRAY_DESCRIPTOR small{16, 16, 0x20, 4}, large{1024, 1024, 0x20, 4};
  CUarray array;
  CALL(cuArrayCreate_v2, &array, &small);
  VALUE("16 x 16 takes MiB", (before - free_bytes()) >> 20);
  CALL(cuArrayDestroy, array);
  VALUE("left MiB", (before - free_bytes()) >> 20);
  CALL(cuArrayCreate_v2, &array, &large);
  VALUE("1024 x 1024 takes MiB", (before - free_bytes()) >> 20);
  CUDA_ARRAY_DESCRIPTOR told{};
  CALL(cuArrayGetDescriptor_v2, &told, array);
  VALUE("width", told.Width);
  VALUE("format", told.Format);
  CALL(cuArrayDestroy, array);
  VALUE("left MiB", (before - free_bytes()) >> 20);
  CUDA_ARRAY3D_DESCRIPTOR three{1000, 1000, 0, 0x01, 4, 0};
  CUmipmappedArray mipmap;
  CALL(cuMipmappedArrayCreate, &mipmap, &three, 5);
  VALUE("mipmap takes MiB", (before - free_bytes()) >> 20);
  CALL(cuMipmappedArrayDestroy, mipmap);
  CALLED("null", cuArrayCreate_v2, &array, nullptr);
  CUDA_ARRAY_DESCRIPTOR bad{16, 16, 0x20, 3};
  CALLED("3 channels", cuArrayCreate_v2, &array, &bad);
  CUDA_ARRAY_DESCRIPTOR nothing{0, 0, 0x20, 1};
  CALLED("no width", cuArrayCreate_v2, &array, &nothing);
}

}  // namespace contract
