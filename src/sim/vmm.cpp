// Physical memory and addresses apart: handles, reservations, mappings.
#include <cstring>

#include "sim/call.h"
#include "sim/ipc.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace {

constexpr int kDeviceLocation = 1, kHostLocation = 2, kNumaLocation = 3;
constexpr int kDescriptor = 1;

// A handle counts its references; the memory lives until the last one and the last mapping are gone.
struct Handle {
  PhysicalRef physical;
  CUmemAllocationProp properties{};
  unsigned references = 1, mappings = 0;
};

struct Vmm {
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  std::map<uint64_t, uint64_t> reservations;
  std::map<uint64_t, CUmemGenericAllocationHandle> mapped;  // by start of the mapping
  CUmemGenericAllocationHandle next = 0x100000;
};

Vmm& vmm() {
  static auto* const the_vmm = new Vmm;
  return *the_vmm;
}

Handle* handle_of(CUmemGenericAllocationHandle number) {
  auto at = vmm().handles.find(number);
  return at == vmm().handles.end() ? nullptr : &at->second;
}

// One that is only kept by its mappings cannot be named any more.
Handle* named_handle(CUmemGenericAllocationHandle number) {
  Handle* handle = handle_of(number);
  return handle && handle->references ? handle : nullptr;
}

void drop_unused(CUmemGenericAllocationHandle number) {
  const Handle* handle = handle_of(number);
  if (handle && !handle->references && !handle->mappings) vmm().handles.erase(number);
}

CUmemGenericAllocationHandle add_handle(PhysicalRef physical, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle number = vmm().next++;
  vmm().handles[number] = {std::move(physical), properties};
  return number;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (!properties || properties->type != 1 || properties->requestedHandleTypes & ~0xf) return CUDA_ERROR_INVALID_VALUE;
  switch (properties->location.type) {
    case kDeviceLocation:
      return device_of(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case kHostLocation:
      return CUDA_SUCCESS;
    case kNumaLocation:
      return properties->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool whole_pages(uint64_t value) { return value % kPageBytes == 0; }

// The mappings that make up exactly [start, start + bytes), or none.
std::vector<Range*> mappings_in(uint64_t start, uint64_t bytes) {
  std::vector<Range*> found;
  for (uint64_t at = start; at < start + bytes;) {
    auto mapping = process().ranges.find(at);
    if (mapping == process().ranges.end() || mapping->second.kind != RangeKind::mapped) return {};
    found.push_back(&mapping->second);
    at += mapping->second.bytes;
    if (at > start + bytes) return {};
  }
  return found;
}

bool reserved(uint64_t start, uint64_t bytes) {
  auto at = vmm().reservations.upper_bound(start);
  return at != vmm().reservations.begin() && (--at)->first + at->second >= start + bytes && start + bytes > start;
}

bool anything_mapped(uint64_t start, uint64_t bytes) {
  auto next = process().ranges.lower_bound(start);
  return find_range(start) || (next != process().ranges.end() && next->first < start + bytes);
}

CUresult wait_for_all(Call& call) {
  CUresult error = CUDA_SUCCESS;
  for (size_t i = 0; i < process().contexts.size(); ++i)
    if (Context& context = *process().contexts[i]; context.alive)
      if (CUresult bad = wait_for_context(call.lock, context)) error = bad;
  return error;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags flags) {
  SIM_CALL(kDriver);
  if (!granularity || !properties || flags < 0 || flags > 1 || properties->location.type < 1 ||
      properties->location.type > 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type == kDeviceLocation && !device_of(properties->location.id))
    return CUDA_ERROR_INVALID_DEVICE;
  *granularity = kPageBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     uint64_t flags) {
  SIM_CALL(kDriver);
  if (!handle || !bytes || flags || !whole_pages(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult bad = check_properties(properties)) return bad;
  bool on_device = properties->location.type == kDeviceLocation;
  auto physical =
      on_device ? take_physical(device_of(properties->location.id)->card, bytes) : take_host_physical(bytes);
  if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = add_handle(std::move(physical), *properties);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number) {
  SIM_CALL(kDriver);
  Handle* handle = named_handle(number);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  --handle->references;
  drop_unused(number);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* number, void* address) {
  SIM_CALL(kDriver);
  const Range* range = find_range(reinterpret_cast<uint64_t>(address));
  if (!number || !range || range->kind != RangeKind::mapped) return CUDA_ERROR_INVALID_VALUE;
  *number = vmm().mapped[range->start];
  ++handle_of(*number)->references;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle number) {
  SIM_CALL(kDriver);
  const Handle* handle = named_handle(number);
  if (!properties || !handle) return CUDA_ERROR_INVALID_VALUE;
  *properties = handle->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wish, uint64_t flags) {
  SIM_CALL(kDriver);
  if (!address || !bytes || flags || !whole_pages(bytes) || (alignment & (alignment - 1)))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t taken = take_addresses(bytes, alignment, wish);
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  vmm().reservations[taken] = bytes;
  *address = taken;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  SIM_CALL(kDriver);
  auto at = vmm().reservations.find(address);
  if (at == vmm().reservations.end() || at->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (anything_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  vmm().reservations.erase(at);
  give_addresses(address, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle number,
                  uint64_t flags) {
  SIM_CALL(kDriver);
  Handle* handle = named_handle(number);
  if (!handle || flags || !bytes || !whole_pages(bytes) || !whole_pages(address) || offset)
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes > handle->physical->bytes || !reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (anything_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!map_physical(*handle->physical, offset, bytes, address)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = address;
  range.bytes = bytes;
  range.kind = RangeKind::mapped;
  range.device =
      handle->properties.location.type == kDeviceLocation ? device_of(handle->properties.location.id) : nullptr;
  range.physical = handle->physical;
  range.access = 0;
  add_range(std::move(range));
  vmm().mapped[address] = number;
  ++handle->mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  SIM_CALL(kDriver);
  if (!bytes || !reserved(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (mappings_in(address, bytes).empty())
    return anything_mapped(address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (CUresult error = wait_for_all(call)) return error;
  for (const Range* range : mappings_in(address, bytes)) {
    uint64_t start = range->start;
    unmap(start, range->bytes);
    CUmemGenericAllocationHandle number = vmm().mapped[start];
    vmm().mapped.erase(start);
    drop_range(start);
    --handle_of(number)->mappings;
    drop_unused(number);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  SIM_CALL(kDriver);
  auto mappings = mappings_in(address, bytes);
  if (!access || !count || !bytes || mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& each = access[i];
    if (each.flags != 0 && each.flags != 1 && each.flags != 3) return CUDA_ERROR_INVALID_VALUE;
    if (each.location.type == kDeviceLocation && !device_of(each.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    for (Range* range : mappings)
      if (each.location.type == kDeviceLocation) range->access = each.flags;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(uint64_t* flags, const CUmemLocation* location, CUdeviceptr address) {
  SIM_CALL(kDriver);
  const Range* range = find_range(address);
  if (!flags || !location || !range || range->kind != RangeKind::mapped) return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<uint64_t>(range->access);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle number, CUmemAllocationHandleType type,
                                      uint64_t flags) {
  SIM_CALL(kDriver);
  const Handle* handle = named_handle(number);
  if (!shared || !handle || flags || type != kDescriptor || !(handle->properties.requestedHandleTypes & kDescriptor))
    return CUDA_ERROR_INVALID_VALUE;
  if (!make_shared_physical(handle->physical)) return CUDA_ERROR_NOT_SUPPORTED;
  int fd = open_share_file(*handle->physical->share);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shared, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* number, void* shared,
                                        CUmemAllocationHandleType type) {
  SIM_CALL(kDriver);
  if (!number || type != kDescriptor) return CUDA_ERROR_INVALID_VALUE;
  PhysicalRef physical = import_share(static_cast<int>(reinterpret_cast<intptr_t>(shared)));
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.requestedHandleTypes = kDescriptor;
  properties.location = {kDeviceLocation, ordinal_of_card(physical->card)};
  *number = add_handle(std::move(physical), properties);
  return CUDA_SUCCESS;
}

}  // extern "C"
