// The runtime's functions that place memory on devices, or tell where it is. Lists of places are copied for the call, so that the
// program's own stay as they are.
#include "abi/generated/runtime_bodies.h"
#include "shim/location_lists.h"
#include "shim/runtime_alias.h"

namespace berth::shim::alias {
namespace {

cudaMemLocation location_in(RuntimePlace place) { return __builtin_bit_cast(cudaMemLocation, place); }

// The place for the runtime, which takes a device or a location.
RuntimePlace on_card_place(RuntimePlace place, bool is_location) {
  if (is_location) return __builtin_bit_cast(RuntimePlace, on_card(location_in(place)));
  return static_cast<uint32_t>(on_card(static_cast<int>(place)));
}
int device_in_place(RuntimePlace place, bool is_location) {
  return is_location ? device_in(location_in(place)) : static_cast<int>(place);
}
bool takes_location() { return runtime_version() >= 13000; }

cudaMemLocation location_on_card(cudaMemLocation location) { return on_card(location); }
void change_location(cudaMemLocation& location) { location = on_card(location); }
void change_hints(cudaMemcpyAttributes& attributes) { change_hints_of(attributes, location_on_card); }
void change_operands(cudaMemcpy3DBatchOp& copy) { change_operands_of(copy, location_on_card); }

// What an answer about a range says of devices, once the runtime has given it.
void tell_range(cudaMemRangeAttribute attribute, void* data, size_t size, const void* address, size_t bytes) {
  auto* numbers = static_cast<int*>(data);
  size_t used = 0;
  auto ask = find<decltype(&::cudaMemRangeGetAttribute)>(Row::cudaMemRangeGetAttribute);
  switch (attribute) {
    case abi::kMemRangePreferredLocation:
    case abi::kMemRangeLastPrefetchLocation: used = 1; break;
    case abi::kMemRangeAccessedBy: used = size / sizeof(int); break;
    case abi::kMemRangePreferredLocationId:
    case abi::kMemRangeLastPrefetchLocationId: {
      int type = 0;
      bool told = ask && ask(&type, sizeof type, attribute - 1, address, bytes) == cudaSuccess;
      used = told && type == abi::kMemLocationDevice;
      break;
    }
    default: break;
  }
  for (size_t i = 0; numbers && i < used; ++i)
    if (numbers[i] >= 0) numbers[i] = of_memory(address, numbers[i]);
}

template <class Real>
cudaError_t prefetch_batch(Real real, void** addresses, size_t* sizes, size_t number, cudaMemLocation* locations, size_t* indices,
                           size_t kinds, unsigned long long flags, cudaStream_t stream) {
  Changed<cudaMemLocation> cards(locations, kinds <= number ? kinds : 0, change_location);
  return real(addresses, sizes, number, cards.list, indices, kinds, flags, stream);
}

// `params` gets what the call has written back.
template <class Call>
cudaError_t with_node(cudaGraphNodeParams* params, Call call) {
  if (!params || params->type != abi::kGraphNodeMemAlloc) return call(params);
  cudaGraphNodeParams copy = *params;
  AllocOnCard alloc(params->alloc, location_on_card);
  copy.alloc = alloc.copy;
  Meant meant(device_in(params->alloc.poolProps.location));
  cudaError_t result = call(&copy);
  params->alloc.dptr = copy.alloc.dptr;
  return result;
}

void tell_node(cudaGraphNode_t node, cudaMemAllocNodeParams& params) {
  cudaMemLocation& location = params.poolProps.location;
  if (location.type == abi::kMemLocationDevice && location.id >= 0) location.id = view->of_node(node, location.id);
}

}  // namespace

cudaError_t cudaPointerGetAttributes(decltype(&::cudaPointerGetAttributes) real, cudaPointerAttributes* told, const void* address) {
  cudaError_t result = real(told, address);
  if (result == cudaSuccess && told->device >= 0) told->device = of_memory(address, told->device);
  return result;
}

cudaError_t cudaMemRangeGetAttribute(decltype(&::cudaMemRangeGetAttribute) real, void* data, size_t size,
                                     cudaMemRangeAttribute attribute, const void* address, size_t bytes) {
  cudaError_t result = real(data, size, attribute, address, bytes);
  if (result == cudaSuccess) tell_range(attribute, data, size, address, bytes);
  return result;
}
cudaError_t cudaMemRangeGetAttributes(decltype(&::cudaMemRangeGetAttributes) real, void** data, size_t* sizes,
                                      cudaMemRangeAttribute* attributes, size_t number, const void* address, size_t bytes) {
  cudaError_t result = real(data, sizes, attributes, number, address, bytes);
  for (size_t i = 0; result == cudaSuccess && i < number; ++i) tell_range(attributes[i], data[i], sizes[i], address, bytes);
  return result;
}

cudaError_t cudaMemPrefetchAsync(decltype(&::cudaMemPrefetchAsync) real, const void* address, size_t bytes, RuntimePlace place,
                                 uint64_t fourth, cudaStream_t fifth) {  // flags and stream, or stream and nothing
  Meant meant(device_in_place(place, takes_location()));
  return real(address, bytes, on_card_place(place, takes_location()), fourth, fifth);
}
cudaError_t cudaMemPrefetchAsync_v2(decltype(&::cudaMemPrefetchAsync_v2) real, const void* address, size_t bytes, RuntimePlace place,
                                    unsigned flags, cudaStream_t stream) {
  Meant meant(device_in_place(place, true));
  return real(address, bytes, on_card_place(place, true), flags, stream);
}
cudaError_t cudaMemAdvise(decltype(&::cudaMemAdvise) real, const void* address, size_t bytes, cudaMemoryAdvise advice, RuntimePlace place) {
  Meant meant(device_in_place(place, takes_location()));
  return real(address, bytes, advice, on_card_place(place, takes_location()));
}
cudaError_t cudaMemAdvise_v2(decltype(&::cudaMemAdvise_v2) real, const void* address, size_t bytes, cudaMemoryAdvise advice,
                             RuntimePlace place) {
  Meant meant(device_in_place(place, true));
  return real(address, bytes, advice, on_card_place(place, true));
}
cudaError_t cudaMemPrefetchBatchAsync(decltype(&::cudaMemPrefetchBatchAsync) real, void** addresses, size_t* sizes, size_t number,
                                      cudaMemLocation* locations, size_t* indices, size_t kinds, unsigned long long flags,
                                      cudaStream_t stream) {
  return prefetch_batch(real, addresses, sizes, number, locations, indices, kinds, flags, stream);
}
cudaError_t cudaMemDiscardAndPrefetchBatchAsync(decltype(&::cudaMemDiscardAndPrefetchBatchAsync) real, void** addresses,
                                                size_t* sizes, size_t number, cudaMemLocation* locations, size_t* indices,
                                                size_t kinds, unsigned long long flags, cudaStream_t stream) {
  return prefetch_batch(real, addresses, sizes, number, locations, indices, kinds, flags, stream);
}

// CUDA 12 has one argument more before the last: with 13 the ninth is what happens to lie there, and the runtime does not look.
cudaError_t cudaMemcpyBatchAsync(decltype(&::cudaMemcpyBatchAsync) real, void** targets, const void** sources, const size_t* sizes,
                                 size_t number, cudaMemcpyAttributes* attributes, size_t* indices, size_t kinds, uint64_t eighth,
                                 uint64_t ninth) {
  Changed<cudaMemcpyAttributes> cards(attributes, kinds <= number ? kinds : 0, change_hints);
  return real(targets, sources, sizes, number, cards.list, indices, kinds, eighth, ninth);
}
cudaError_t cudaMemcpy3DBatchAsync(decltype(&::cudaMemcpy3DBatchAsync) real, size_t number, cudaMemcpy3DBatchOp* copies,
                                   uint64_t third, uint64_t fourth, uint64_t fifth) {
  Changed<cudaMemcpy3DBatchOp> cards(copies, number, change_operands);
  return real(number, cards.list, third, fourth, fifth);
}
cudaError_t cudaMemcpyWithAttributesAsync(decltype(&::cudaMemcpyWithAttributesAsync) real, void* target, const void* source,
                                          size_t bytes, cudaMemcpyAttributes* attributes, cudaStream_t stream) {
  Changed<cudaMemcpyAttributes> cards(attributes, 1, change_hints);
  return real(target, source, bytes, cards.list, stream);
}
cudaError_t cudaMemcpy3DWithAttributesAsync(decltype(&::cudaMemcpy3DWithAttributesAsync) real, cudaMemcpy3DBatchOp* copy,
                                            unsigned long long flags, cudaStream_t stream) {
  Changed<cudaMemcpy3DBatchOp> cards(copy, 1, change_operands);
  return real(cards.list, flags, stream);
}

namespace {
cudaMemcpy3DPeerParms on_cards(const cudaMemcpy3DPeerParms& copy) {
  cudaMemcpy3DPeerParms result = copy;
  result.srcDevice = on_card(copy.srcDevice);
  result.dstDevice = on_card(copy.dstDevice);
  return result;
}
}  // namespace

cudaError_t cudaMemcpy3DPeer(decltype(&::cudaMemcpy3DPeer) real, const cudaMemcpy3DPeerParms* copy) {
  if (!copy) return real(copy);
  cudaMemcpy3DPeerParms cards = on_cards(*copy);
  return real(&cards);
}
cudaError_t cudaMemcpy3DPeerAsync(decltype(&::cudaMemcpy3DPeerAsync) real, const cudaMemcpy3DPeerParms* copy, cudaStream_t stream) {
  if (!copy) return real(copy, stream);
  cudaMemcpy3DPeerParms cards = on_cards(*copy);
  return real(&cards, stream);
}

cudaError_t cudaMemPoolSetAccess(decltype(&::cudaMemPoolSetAccess) real, cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t number) {
  Accesses cards(list, number, location_on_card);
  return list && cards.fits ? real(pool, cards.list, cards.count) : real(pool, list, number);
}

cudaError_t cudaGraphAddMemAllocNode(decltype(&::cudaGraphAddMemAllocNode) real, cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, size_t number, cudaMemAllocNodeParams* params) {
  if (!params) return real(node, graph, dependencies, number, params);
  AllocOnCard alloc(*params, location_on_card);
  Meant meant(device_in(params->poolProps.location));
  cudaError_t result = real(node, graph, dependencies, number, &alloc.copy);
  params->dptr = alloc.copy.dptr;
  return result;
}

// Up to CUDA 12 without the data of the edges: the number stands in their place, and the parameters in the number's.
cudaError_t cudaGraphAddNode(decltype(&::cudaGraphAddNode) real, cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const void* fourth, size_t fifth, cudaGraphNodeParams* sixth) {
  if (takes_location())
    return with_node(sixth, [&](cudaGraphNodeParams* params) { return real(node, graph, dependencies, fourth, fifth, params); });
  return with_node(reinterpret_cast<cudaGraphNodeParams*>(fifth), [&](cudaGraphNodeParams* params) {
    return real(node, graph, dependencies, fourth, reinterpret_cast<size_t>(params), sixth);
  });
}
cudaError_t cudaGraphAddNode_v2(decltype(&::cudaGraphAddNode_v2) real, cudaGraphNode_t* node, cudaGraph_t graph,
                                const cudaGraphNode_t* dependencies, const void* edges, size_t number, cudaGraphNodeParams* given) {
  return with_node(given, [&](cudaGraphNodeParams* params) { return real(node, graph, dependencies, edges, number, params); });
}
cudaError_t cudaGraphNodeSetParams(decltype(&::cudaGraphNodeSetParams) real, cudaGraphNode_t node, cudaGraphNodeParams* given) {
  return with_node(given, [&](cudaGraphNodeParams* params) { return real(node, params); });
}
cudaError_t cudaGraphExecNodeSetParams(decltype(&::cudaGraphExecNodeSetParams) real, cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* given) {
  return with_node(given, [&](cudaGraphNodeParams* params) { return real(exec, node, params); });
}

cudaError_t cudaGraphMemAllocNodeGetParams(decltype(&::cudaGraphMemAllocNodeGetParams) real, cudaGraphNode_t node,
                                           cudaMemAllocNodeParams* params) {
  cudaError_t result = real(node, params);
  if (result == cudaSuccess) tell_node(node, *params);
  return result;
}
cudaError_t cudaGraphNodeGetParams(decltype(&::cudaGraphNodeGetParams) real, cudaGraphNode_t node, cudaGraphNodeParams* params) {
  cudaError_t result = real(node, params);
  if (result == cudaSuccess && params->type == abi::kGraphNodeMemAlloc) tell_node(node, params->alloc);
  return result;
}

}  // namespace berth::shim::alias
