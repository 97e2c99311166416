// Virtual memory management: physical memory is charged once, when its handle is made, and released with the last of its
// handles and maps. Address ranges cost nothing. Host memory (another location type) is not device memory.
#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/footprint.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

// Takes one reference away; releases the bytes with the last.
void drop_reference(Client& client, uint64_t handle) {
  bool last = false;
  client.table.update(Space::physical, handle, [&](Allocation& a) { last = --a.references == 0; });
  Allocation gone;
  if (last && client.table.remove(Space::physical, handle, &gone)) client.release(gone);
}

}  // namespace

CUresult cuMemCreate(AllocCall& call, decltype(&::cuMemCreate) real, CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, uint64_t flags) {
  // B17: no context is needed here; the device stands in the properties.
  if (!handle || !properties || properties->location.type != abi::kMemLocationDevice || properties->location.id < 0)
    return real(handle, bytes, properties, flags);
  Allocation what;
  what.space = Space::physical;
  what.kind = wire::Kind::physical;
  what.device = static_cast<uint8_t>(account_of(properties->location.id));
  what.bytes = page_footprint(bytes);
  what.references = 1;
  return call.allocate(what, [&] { return real(handle, bytes, properties, flags); }, [&] { return uint64_t{*handle}; });
}

CUresult cuMemImportFromShareableHandle(AllocCall& call, decltype(&::cuMemImportFromShareableHandle) real,
                                        CUmemGenericAllocationHandle* handle, void* from, CUmemAllocationHandleType type) {
  CUresult result = real(handle, from, type);
  if (result != CUDA_SUCCESS) return result;
  // Its size is not told here; the first map of it says how much there is.
  Allocation import;
  import.space = Space::physical;
  import.kind = wire::Kind::imported;
  import.key = *handle;
  import.references = 1;
  bool again = false;  // the import of one's own export gives a handle that we know
  call.client().table.update(Space::physical, *handle, [&](Allocation& a) { again = ++a.references != 0; });
  if (!again) call.client().table.insert(import);
  return result;
}

CUresult cuMemRetainAllocationHandle(FreeCall& call, decltype(&::cuMemRetainAllocationHandle) real,
                                     CUmemGenericAllocationHandle* handle, void* address) {
  CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS) call.client().table.update(Space::physical, *handle, [](Allocation& a) { ++a.references; });
  return result;
}

CUresult cuMemRelease(FreeCall& call, decltype(&::cuMemRelease) real, CUmemGenericAllocationHandle handle) {
  CUresult result = real(handle);
  if (result == CUDA_SUCCESS) drop_reference(call.client(), handle);
  return result;
}

CUresult cuMemMap(FreeCall& call, decltype(&::cuMemMap) real, CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, uint64_t flags) {
  CUresult result = real(address, bytes, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  uint64_t imported = 0;
  uint32_t device = 0;
  bool known = call.client().table.update(Space::physical, handle, [&](Allocation& a) {
    ++a.references;
    if (a.kind == wire::Kind::imported && a.bytes < offset + bytes) {
      if (!a.bytes && current_device(&device)) a.device = static_cast<uint8_t>(device);
      device = a.device;
      imported = offset + bytes - a.bytes;
      a.bytes = offset + bytes;
    }
  });
  if (!known) return result;  // host memory
  if (imported) {
    uint64_t granted;
    call.client().reserve(device, wire::Kind::imported, imported, wire::Force::taken, &granted);
  }
  Allocation mapping;
  mapping.space = Space::mapping;
  mapping.key = address;
  mapping.link = handle;
  call.client().table.insert(mapping);
  return result;
}

CUresult cuMemUnmap(FreeCall& call, decltype(&::cuMemUnmap) real, CUdeviceptr address, size_t bytes) {
  CUresult result = real(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  Allocation mapping;  // one call may unmap several
  auto inside = [&](const Allocation& a) { return a.space == Space::mapping && a.key - address < bytes; };
  while (call.client().table.remove_if(inside, &mapping)) drop_reference(call.client(), mapping.link);
  return result;
}

}  // namespace berth::shim::intercept
