// Memory of virtual devices where the driver would choose by the card: pools, and what is told of where memory lies.
//
// The virtual device that owns its card has the card's default pool, each other one a pool of its own that stands for it.
#include <string.h>

#include "shim/call.h"
#include "shim/location_lists.h"
#include "shim/virtual_devices.h"

namespace berth::shim::virtual_device {
namespace {

// The virtual device if it has a pool of its own; null: the card's is meant.
VirtualDevice* with_own_pool(CUdevice device) {
  VirtualDevices& all = *virtual_devices;
  VirtualDevices::Seen seen = all.see(device);
  return seen.valid && !all.claims_card(seen.ordinal) ? &all.devices[seen.ordinal] : nullptr;
}

CUresult default_pool(VirtualDevice& own, CUmemoryPool* pool) {
  *pool = __atomic_load_n(&own.default_pool, __ATOMIC_ACQUIRE);
  if (*pool) return CUDA_SUCCESS;
  CUmemPoolProps properties{};
  properties.allocType = abi::kMemAllocationPinned;
  properties.location = {abi::kMemLocationDevice, own.card};
  if (CUresult result = raw::cuMemPoolCreate(pool, &properties); result != CUDA_SUCCESS) return result;
  CUmemoryPool none = nullptr, fresh = *pool;
  if (__atomic_compare_exchange_n(&own.default_pool, &none, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return CUDA_SUCCESS;
  real::cuMemPoolDestroy(fresh);  // another thread was first
  *pool = none;
  return CUDA_SUCCESS;
}

CUresult present_pool(VirtualDevice& own, CUmemoryPool* pool) {
  *pool = __atomic_load_n(&own.pool, __ATOMIC_ACQUIRE);
  return *pool ? CUDA_SUCCESS : default_pool(own, pool);
}

bool is_device(const CUmemLocation* location) { return location && location->type == abi::kMemLocationDevice; }

CUmemLocation location_on_card(CUmemLocation location) { return on_card(location); }
void change_location(CUmemLocation& location) { location = on_card(location); }
void change_hints(CUmemcpyAttributes& attributes) { change_hints_of(attributes, location_on_card); }
void change_operands(CUDA_MEMCPY3D_BATCH_OP& copy) { change_operands_of(copy, location_on_card); }

int told_of(CUdeviceptr address, int card) {
  if (card < 0 || (guest_depth == 0 && virtual_devices->shares_contexts())) return card;  // the host, or by the runtime's eyes
  return static_cast<int>(virtual_devices->of_memory(address, card));
}

void tell_range(CUmem_range_attribute attribute, void* data, size_t size, CUdeviceptr address) {
  bool list = attribute == abi::kMemRangeAccessedBy;
  bool one = attribute == abi::kMemRangePreferredLocation || attribute == abi::kMemRangeLastPrefetchLocation;
  if (!data || (!list && !one)) return;
  auto* numbers = static_cast<int*>(data);
  for (size_t i = 0; i < (list ? size / sizeof(int) : 1); ++i) numbers[i] = told_of(address, numbers[i]);
}

template <class Raw>
CUresult prefetch_batch(Raw raw, CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations, size_t* indices,
                        size_t kinds, uint64_t flags, CUstream stream) {
  Changed<CUmemLocation> cards(locations, kinds <= count ? kinds : 0, change_location);
  return raw(addresses, sizes, count, cards.list, indices, kinds, flags, stream);
}

// The node says the card only; whose it is must be known at instantiation.
void note_node(CUgraphNode node, CUmemLocation location) {
  Client* client = current_client();
  if (!client || location.type != abi::kMemLocationDevice) return;
  Allocation made;
  made.space = Space::graph_node;
  made.key = reinterpret_cast<uint64_t>(node);
  made.device = static_cast<uint8_t>(account_of(location.id));
  client->table.insert(made);
}

// `made`: where the new node goes; null if none is made.
template <class Driver>
CUresult with_node(CUgraphNode* made, CUgraphNodeParams* params, Driver driver) {
  if (!params || params->type != abi::kGraphNodeMemAlloc) return driver(params);
  CUgraphNodeParams copy = *params;
  AllocOnCard alloc(params->alloc, location_on_card);
  copy.alloc = alloc.copy;
  CUresult result = driver(&copy);
  params->alloc.dptr = copy.alloc.dptr;
  if (result == CUDA_SUCCESS && made) note_node(*made, params->alloc.poolProps.location);
  return result;
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(decltype(&::cuDeviceGetDefaultMemPool) raw, CUmemoryPool* pool, CUdevice device) {
  VirtualDevice* own = pool ? with_own_pool(device) : nullptr;
  return own ? default_pool(*own, pool) : raw(pool, on_card(device));
}
CUresult cuDeviceGetMemPool(decltype(&::cuDeviceGetMemPool) raw, CUmemoryPool* pool, CUdevice device) {
  VirtualDevice* own = pool ? with_own_pool(device) : nullptr;
  return own ? present_pool(*own, pool) : raw(pool, on_card(device));
}
CUresult cuDeviceSetMemPool(decltype(&::cuDeviceSetMemPool) raw, CUdevice device, CUmemoryPool pool) {
  VirtualDevice* own = pool ? with_own_pool(device) : nullptr;
  if (!own) return raw(on_card(device), pool);
  __atomic_store_n(&own->pool, pool, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(decltype(&::cuMemGetDefaultMemPool) raw, CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) {
  VirtualDevice* own = pool && is_device(location) && type == abi::kMemAllocationPinned ? with_own_pool(location->id) : nullptr;
  return own ? default_pool(*own, pool) : raw(pool, on_card(location), type);
}
CUresult cuMemGetMemPool(decltype(&::cuMemGetMemPool) raw, CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  VirtualDevice* own = pool && is_device(location) && type == abi::kMemAllocationPinned ? with_own_pool(location->id) : nullptr;
  return own ? present_pool(*own, pool) : raw(pool, on_card(location), type);
}
CUresult cuMemSetMemPool(decltype(&::cuMemSetMemPool) raw, CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  VirtualDevice* own = pool && is_device(location) && type == abi::kMemAllocationPinned ? with_own_pool(location->id) : nullptr;
  if (!own) return raw(on_card(location), type, pool);
  __atomic_store_n(&own->pool, pool, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(decltype(&::cuMemAllocAsync) raw, CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  bool per_thread = raw == &raw::cuMemAllocAsync_ptsz;
  uint32_t ordinal;
  CUmemoryPool pool;
  if (!virtual_devices->of_stream(stream, per_thread, &ordinal)) return raw(pointer, bytes, stream);
  if (virtual_devices->claims_card(ordinal)) return raw(pointer, bytes, stream);
  if (CUresult result = present_pool(virtual_devices->devices[ordinal], &pool); result != CUDA_SUCCESS) return result;
  return per_thread ? real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream)
                    : real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}

CUresult cuMemPoolSetAccess(decltype(&::cuMemPoolSetAccess) raw, CUmemoryPool pool, const CUmemAccessDesc* list, size_t count) {
  Accesses cards(list, count, location_on_card);
  return list && cards.fits ? raw(pool, cards.list, cards.count) : raw(pool, list, count);
}
CUresult cuMemSetAccess(decltype(&::cuMemSetAccess) raw, CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* list, size_t count) {
  Accesses cards(list, count, location_on_card);
  return list && cards.fits ? raw(pointer, bytes, cards.list, cards.count) : raw(pointer, bytes, list, count);
}

CUresult cuMemGetAllocationPropertiesFromHandle(decltype(&::cuMemGetAllocationPropertiesFromHandle) raw,
                                                CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  CUresult result = raw(properties, handle);
  if (result != CUDA_SUCCESS || properties->location.type != abi::kMemLocationDevice) return result;
  if (guest_depth == 0 && virtual_devices->shares_contexts()) return result;
  Allocation known;
  Client* client = current_client();
  bool ours = client && client->table.find(Space::physical, handle, &known);
  properties->location.id =
      static_cast<int>(ours ? known.device : virtual_devices->current_on(static_cast<uint32_t>(properties->location.id)));
  return result;
}

CUresult cuGraphAddMemAllocNode(decltype(&::cuGraphAddMemAllocNode) raw, CUgraphNode* node, CUgraph graph,
                                const CUgraphNode* dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (!params) return raw(node, graph, dependencies, count, params);
  AllocOnCard alloc(*params, location_on_card);
  CUresult result = raw(node, graph, dependencies, count, &alloc.copy);
  params->dptr = alloc.copy.dptr;
  if (result == CUDA_SUCCESS) note_node(*node, params->poolProps.location);
  return result;
}

CUresult cuGraphAddNode(decltype(&::cuGraphAddNode) raw, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        size_t count, CUgraphNodeParams* given) {
  return with_node(node, given, [&](CUgraphNodeParams* params) { return raw(node, graph, dependencies, count, params); });
}
CUresult cuGraphAddNode_v2(decltype(&::cuGraphAddNode_v2) raw, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* given) {
  return with_node(node, given, [&](CUgraphNodeParams* params) { return raw(node, graph, dependencies, edges, count, params); });
}
CUresult cuGraphNodeSetParams(decltype(&::cuGraphNodeSetParams) raw, CUgraphNode node, CUgraphNodeParams* given) {
  return with_node(nullptr, given, [&](CUgraphNodeParams* params) { return raw(node, params); });
}
CUresult cuGraphExecNodeSetParams(decltype(&::cuGraphExecNodeSetParams) raw, CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams* given) {
  return with_node(nullptr, given, [&](CUgraphNodeParams* params) { return raw(exec, node, params); });
}

CUresult cuGraphMemAllocNodeGetParams(decltype(&::cuGraphMemAllocNodeGetParams) raw, CUgraphNode node,
                                      CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  CUresult result = raw(node, params);
  if (result != CUDA_SUCCESS || params->poolProps.location.type != abi::kMemLocationDevice) return result;
  if (guest_depth == 0 && virtual_devices->shares_contexts()) return result;
  int& id = params->poolProps.location.id;
  id = static_cast<int>(virtual_devices->of_node(node, id));
  return result;
}

CUresult cuMemRangeGetAttribute(decltype(&::cuMemRangeGetAttribute) raw, void* data, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr pointer, size_t count) {
  CUresult result = raw(data, size, attribute, pointer, count);
  if (result == CUDA_SUCCESS) tell_range(attribute, data, size, pointer);
  return result;
}
CUresult cuMemRangeGetAttributes(decltype(&::cuMemRangeGetAttributes) raw, void** data, size_t* sizes,
                                 CUmem_range_attribute* attributes, size_t number, CUdeviceptr pointer, size_t count) {
  CUresult result = raw(data, sizes, attributes, number, pointer, count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < number; ++i) tell_range(attributes[i], data[i], sizes[i], pointer);
  return result;
}

CUresult cuMemPrefetchBatchAsync(decltype(&::cuMemPrefetchBatchAsync) raw, CUdeviceptr* addresses, size_t* sizes, size_t count,
                                 CUmemLocation* locations, size_t* indices, size_t kinds, uint64_t flags, CUstream stream) {
  return prefetch_batch(raw, addresses, sizes, count, locations, indices, kinds, flags, stream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(decltype(&::cuMemDiscardAndPrefetchBatchAsync) raw, CUdeviceptr* addresses,
                                           size_t* sizes, size_t count, CUmemLocation* locations, size_t* indices, size_t kinds,
                                           uint64_t flags, CUstream stream) {
  return prefetch_batch(raw, addresses, sizes, count, locations, indices, kinds, flags, stream);
}

CUresult cuMemcpyBatchAsync(decltype(&::cuMemcpyBatchAsync) raw, CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* indices, size_t kinds, size_t* failed,
                            CUstream stream) {
  Changed<CUmemcpyAttributes> cards(attributes, kinds <= count ? kinds : 0, change_hints);
  return raw(targets, sources, sizes, count, cards.list, indices, kinds, failed, stream);
}
CUresult cuMemcpyBatchAsync_v2(decltype(&::cuMemcpyBatchAsync_v2) raw, CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes,
                               size_t count, CUmemcpyAttributes* attributes, size_t* indices, size_t kinds, CUstream stream) {
  Changed<CUmemcpyAttributes> cards(attributes, kinds <= count ? kinds : 0, change_hints);
  return raw(targets, sources, sizes, count, cards.list, indices, kinds, stream);
}
CUresult cuMemcpy3DBatchAsync(decltype(&::cuMemcpy3DBatchAsync) raw, size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                              uint64_t flags, CUstream stream) {
  Changed<CUDA_MEMCPY3D_BATCH_OP> cards(copies, count, change_operands);
  return raw(count, cards.list, failed, flags, stream);
}
CUresult cuMemcpy3DBatchAsync_v2(decltype(&::cuMemcpy3DBatchAsync_v2) raw, size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                 uint64_t flags, CUstream stream) {
  Changed<CUDA_MEMCPY3D_BATCH_OP> cards(copies, count, change_operands);
  return raw(count, cards.list, flags, stream);
}

}  // namespace berth::shim::virtual_device
