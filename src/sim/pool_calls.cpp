// The interface of memory pools and of stream-ordered allocation.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "sim/call.h"
#include "sim/capture.h"
#include "sim/memory.h"
#include "sim/pool.h"

using namespace berth::sim;

namespace {

constexpr int kDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CUresult allocate(Call& call, CUdeviceptr* pointer, size_t bytes, Pool* pool, Stream* stream) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer || !pool || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (!bytes) bytes = 1;  // recorded: no error, unlike cuMemAlloc
  if (stream->capture) return capture_allocation(*stream, *pool->device, bytes, pointer);
  if (CUresult bad = forbid_implicit(*stream)) return bad;
  if (stream->context->error) return stream->context->error;
  uint64_t address = 0;
  CUresult result = pool->take(bytes, stream, *stream->context, &address);
  // What other streams have freed but not yet reached may be enough: the driver would make this stream wait for them.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && pool->frees_pending()) {
    process().done.wait_for(call.lock, std::chrono::seconds(1), [&] { return !pool->frees_pending(); });
    result = pool->take(bytes, stream, *stream->context, &address);
  }
  if (!result) *pointer = address;
  return result;
}

CUresult free_later(Stream& stream, const Range& range) {
  for (const auto& each : range.device->freed_later)
    if (each.second == range.start) return CUDA_ERROR_INVALID_VALUE;
  TicketRef ticket;
  if (CUresult bad = submit_work(stream, EmptyWork{}, &ticket)) return bad;
  range.device->freed_later.emplace_back(ticket, range.start);
  return CUDA_SUCCESS;
}

// Recorded: also memory of cuMemAlloc may be freed so, and null is nothing to free.
CUresult release(CUdeviceptr pointer, Stream* stream) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer) return CUDA_SUCCESS;
  auto at = process().ranges.find(pointer);
  if (stream->capture) return capture_free(*stream, pointer);
  if (at == process().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  Range& range = at->second;
  if (range.kind == RangeKind::graph) return submit_work(*stream, GraphFreeWork{pointer});
  if (range.kind == RangeKind::device || range.kind == RangeKind::small) return free_later(*stream, range);
  if (range.kind != RangeKind::pool) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = forbid_implicit(*stream)) return bad;
  Pool* pool = range.pool;
  return submit_work(*stream, PoolFreeWork{pool, pointer, pool->begin_free(pointer, stream)});
}

CUresult check_properties(const CUmemPoolProps& properties) {
  if (properties.allocType != 1 || properties.handleTypes & ~kDescriptor) return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type != 1) return CUDA_ERROR_NOT_SUPPORTED;  // host pools: the attribute says so too
  return device_of(properties.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

extern "C" {

SIM_BOTH_FLAVOURS(cuMemAllocAsync, _ptsz, (CUdeviceptr * pointer, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  Stream* target = stream_of(call, stream, flavour);
  return allocate(call, pointer, bytes, target ? target->context->device->current_pool : nullptr, target);
})

SIM_BOTH_FLAVOURS(cuMemAllocFromPoolAsync, _ptsz,
                  (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream), {
                    SIM_CALL(kContext);
                    return allocate(call, pointer, bytes, pool_of(pool), stream_of(call, stream, flavour));
                  })

SIM_BOTH_FLAVOURS(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream stream), {
  SIM_CALL(kContext);
  return release(pointer, stream_of(call, stream, flavour));
})

CUresult cuMemPoolCreate(CUmemoryPool* result, const CUmemPoolProps* properties) {
  SIM_CALL(kDriver);
  if (!result || !properties) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_properties(*properties)) return bad;
  *result = reinterpret_cast<CUmemoryPool>(make_pool(*device_of(properties->location.id), properties));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIM_CALL(kDriver);
  Pool* pool = pool_of(handle);
  if (!pool || pool == pool->device->default_pool) return CUDA_ERROR_INVALID_VALUE;
  if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
  pool->destroyed = true;  // lives on while allocations do
  if (!pool->file.empty() && !pool->imported) unlink(folder_file(pool->file).c_str());
  pool->trim(0);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  SIM_CALL(kDriver | kUnsafe);
  Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  pool->trim(keep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIM_CALL(kDriver | kUnsafe);
  const Pool* pool = pool_of(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= 1 && attribute <= 3)
    return std::memcpy(value, &pool->reuse[attribute - 1], sizeof(int)), CUDA_SUCCESS;
  const uint64_t* field = nullptr;
  switch (attribute) {
    case 4:
      field = &pool->threshold;
      break;
    case 5:
      field = &pool->reserved;
      break;
    case 6:
      field = &pool->reserved_high;
      break;
    case 7:
      field = &pool->used;
      break;
    case 8:
      field = &pool->used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(value, field, sizeof *field);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIM_CALL(kDriver | kUnsafe);
  Pool* pool = pool_of(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= 1 && attribute <= 3)
    return std::memcpy(&pool->reuse[attribute - 1], value, sizeof(int)), CUDA_SUCCESS;
  uint64_t number = 0;
  std::memcpy(&number, value, sizeof number);
  if (attribute == 4) return pool->threshold = number, CUDA_SUCCESS;
  if ((attribute != 6 && attribute != 8) || number)
    return CUDA_ERROR_INVALID_VALUE;  // high-water marks can only be reset
  if (attribute == 6)
    pool->reserved_high = pool->reserved;
  else
    pool->used_high = pool->used;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  SIM_CALL(kDriver);
  if (!flags || !location || !pool_of(handle) || location->type != 1 || !device_of(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = 3;  // every card of a process can reach every other
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  SIM_CALL(kDriver);
  const Pool* pool = pool_of(handle);
  if (!pool || (count && !access)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != 1 || !device_of(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].location.id == pool->device->ordinal && access[i].flags != 3) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  SIM_CALL(kDriver);
  const Device* device = device_of(ordinal);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(device->default_pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  SIM_CALL(kDriver);
  const Device* device = device_of(ordinal);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(device->current_pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  SIM_CALL(kDriver);
  Device* device = device_of(ordinal);
  Pool* pool = pool_of(handle);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  device->current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle, CUmemoryPool which, CUmemAllocationHandleType type,
                                          uint64_t flags) {
  SIM_CALL(kDriver);
  Pool* pool = pool_of(which);
  if (!handle || !pool || flags || type != kDescriptor || !(pool->properties.handleTypes & kDescriptor) ||
      pool->imported)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool->file.empty()) pool->file = "pool-" + std::to_string(getpid()) + "-" + std::to_string(process().next_id++);
  berth::UniqueFd fd = open_folder_file(pool->file, O_RDWR | O_CREAT);
  if (!fd) return CUDA_ERROR_OPERATING_SYSTEM;
  int number = fd.release();
  std::memcpy(handle, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* result, void* handle, CUmemAllocationHandleType type,
                                            uint64_t flags) {
  SIM_CALL(kDriver);
  if (!result || flags || type != kDescriptor) return CUDA_ERROR_INVALID_VALUE;
  char path[64], name[4096];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", static_cast<int>(reinterpret_cast<intptr_t>(handle)));
  ssize_t length = readlink(path, name, sizeof name - 1);
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  name[length] = '\0';
  const char* base = std::strrchr(name, '/');
  if (!base || std::strncmp(base + 1, "pool-", 5) != 0) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = make_pool(*process().devices.front(), nullptr);
  pool->file = base + 1;
  pool->imported = true;
  *result = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  SIM_CALL(kDriver);
  const Range* range = find_range(pointer);
  if (!data || !range || range->kind != RangeKind::pool) return CUDA_ERROR_INVALID_VALUE;
  return range->pool->export_pointer(pointer, data);
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  SIM_CALL(kContext);
  Pool* pool = pool_of(handle);
  if (!pointer || !pool || !data) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  CUresult result = pool->import_pointer(*data, *call.context, &address);
  if (!result) *pointer = address;
  return result;
}

}  // extern "C"
