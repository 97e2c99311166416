// Stream-ordered allocation. What counts is what the pool has reserved from the driver; an allocation that the pool serves
// from what it has costs no message to the daemon.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"
#include "shim/free_pointer.h"
#include "shim/pools.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

bool is_capturing(CUstream stream) {
  if (!berth_fork_page->captures.load(std::memory_order_relaxed)) return false;
  CUstreamCaptureStatus status = 0;
  return real::cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != 0;
}

void remember_pool(Client& client, CUmemoryPool pool, uint32_t device) {
  Allocation known;
  if (client.table.find(Space::pool, reinterpret_cast<uint64_t>(pool), &known)) return;
  client.has_pools.store(true, std::memory_order_relaxed);
  settle_pool(client, pool, device, 0);
}

// `undo` gives the new block back to its pool.
template <class Real, class Undo>
CUresult allocate_from(AllocCall& call, CUmemoryPool pool, uint32_t device, uint64_t bytes, Real real, Undo undo) {
  remember_pool(call.client(), pool, device);
  uint64_t reserved = pool_attribute(pool, abi::kMemPoolAttrReservedCurrent);
  uint64_t idle = reserved - pool_attribute(pool, abi::kMemPoolAttrUsedCurrent);
  uint64_t step = 0;
  bool promised = false;
  if (bytes > idle) {  // the pool must grow: what a stream has freed but not yet reached counts as idle (recorded)
    promised = call.reserve(device, wire::Kind::pool, pool_footprint(bytes), wire::Force::none, &step);
    if (!promised) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = call.call_while_leaving(device, bytes, real);
  uint64_t growth = pool_attribute(pool, abi::kMemPoolAttrReservedCurrent);
  growth = growth > reserved ? growth - reserved : 0;
  if (result == CUDA_SUCCESS && growth && !promised) {
    // Grown without leave: fragmentation. Ask now; a no undoes it.
    if (!call.client().reserve(device, wire::Kind::pool, growth, wire::Force::none, &step)) {
      undo();
      if (!berth_fork_page->captures.load(std::memory_order_relaxed)) real::cuMemPoolTrimTo(pool, 0);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  settle_pool(call.client(), pool, device, step);
  return result;
}

}  // namespace

CUresult cuMemAllocAsync(AllocCall& call, decltype(&::cuMemAllocAsync) real, CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  uint32_t device;
  CUmemoryPool pool;
  CUcontext context;
  if (!pointer || bytes == 0 || is_capturing(stream) || !current_context(call, &context, &device))
    return real(pointer, bytes, stream);
  CUdevice stream_device;  // the pool is that of the stream's device
  if (real::cuStreamGetDevice(stream, &stream_device) == CUDA_SUCCESS && stream_device >= 0)
    device = static_cast<uint32_t>(stream_device);
  if (real::cuDeviceGetMemPool(&pool, static_cast<CUdevice>(device)) != CUDA_SUCCESS) return real(pointer, bytes, stream);
  return allocate_from(call, pool, device, bytes, [&] { return real(pointer, bytes, stream); },
                       [&] { real::cuMemFreeAsync(*pointer, stream); });
}

CUresult cuMemAllocFromPoolAsync(AllocCall& call, decltype(&::cuMemAllocFromPoolAsync) real, CUdeviceptr* pointer, size_t bytes,
                                 CUmemoryPool pool, CUstream stream) {
  CUcontext context;
  uint32_t device;
  if (!pointer || !pool || bytes == 0 || is_capturing(stream) || !current_context(call, &context, &device))
    return real(pointer, bytes, pool, stream);
  Allocation known;
  if (call.client().table.find(Space::pool, reinterpret_cast<uint64_t>(pool), &known)) {
    if (known.kind != wire::Kind::pool) return real(pointer, bytes, pool, stream);  // of host memory, or imported
    device = known.device;
  }
  return allocate_from(call, pool, device, bytes, [&] { return real(pointer, bytes, pool, stream); },
                       [&] { real::cuMemFreeAsync(*pointer, stream); });
}

// A pool's memory goes back to its pool, and what that gives back shows at the next synchronisation. Plain memory may be freed
// so too (recorded on the real driver).
CUresult cuMemFreeAsync(FreeCall& call, decltype(&::cuMemFreeAsync) real, CUdeviceptr pointer, CUstream stream) {
  return free_pointer(call, pointer, [&] { return real(pointer, stream); });
}

CUresult cuMemPoolCreate(AllocCall& call, decltype(&::cuMemPoolCreate) real, CUmemoryPool* pool, const CUmemPoolProps* properties) {
  CUresult result = real(pool, properties);
  if (result != CUDA_SUCCESS) return result;
  Allocation made;
  made.space = Space::pool;
  made.key = reinterpret_cast<uint64_t>(*pool);
  bool on_device = properties->location.type == abi::kMemLocationDevice && properties->location.id >= 0;
  made.kind = on_device ? wire::Kind::pool : wire::Kind::imported;
  made.device = on_device ? static_cast<uint8_t>(account_of(properties->location.id)) : uint8_t{0};
  call.client().table.insert(made);
  if (on_device) call.client().has_pools.store(true, std::memory_order_relaxed);
  return result;
}

CUresult cuMemPoolDestroy(FreeCall& call, decltype(&::cuMemPoolDestroy) real, CUmemoryPool pool) {
  Allocation allocation;
  bool ours = call.client().table.remove(Space::pool, reinterpret_cast<uint64_t>(pool), &allocation);
  CUresult result = real(pool);
  if (!ours) return result;
  if (result == CUDA_SUCCESS) call.client().release(allocation);
  else call.client().table.insert(allocation);
  return result;
}

CUresult cuMemPoolTrimTo(FreeCall& call, decltype(&::cuMemPoolTrimTo) real, CUmemoryPool pool, size_t keep) {
  CUresult result = real(pool, keep);
  if (result == CUDA_SUCCESS) settle_all_pools(call.client());
  return result;
}

CUresult cuMemPoolSetAttribute(FreeCall& call, decltype(&::cuMemPoolSetAttribute) real, CUmemoryPool pool,
                               CUmemPool_attribute which, void* value) {
  CUresult result = real(pool, which, value);
  if (result == CUDA_SUCCESS) settle_all_pools(call.client());
  return result;
}

CUresult cuMemPoolImportFromShareableHandle(AllocCall& call, decltype(&::cuMemPoolImportFromShareableHandle) real,
                                            CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type, uint64_t flags) {
  CUresult result = real(pool, handle, type, flags);
  if (result != CUDA_SUCCESS) return result;
  Allocation import;  // its memory is the exporter's
  import.space = Space::pool;
  import.kind = wire::Kind::imported;
  import.key = reinterpret_cast<uint64_t>(*pool);
  call.client().table.insert(import);
  return result;
}

CUresult cuMemPoolImportPointer(AllocCall&, decltype(&::cuMemPoolImportPointer) real, CUdeviceptr* pointer, CUmemoryPool pool,
                                CUmemPoolPtrExportData* data) {
  return real(pointer, pool, data);  // the exporter's
}

}  // namespace berth::shim::intercept
