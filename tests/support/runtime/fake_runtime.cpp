// A CUDA runtime of the tests' own, built twice: as the shared runtimes of CUDA 12 and 13 are named and versioned. It stands on
// the driver interface as a runtime does - looks functions up by cuGetProcAddress, asks for an export table, counts and names
// the devices once, keeps a device for each thread and uses primary contexts - and checks nothing: what NVIDIA's checks of
// itself is its own affair (docs/virtual-devices.md), so it doesn't run on the simulated GPU.
#include "support/runtime/fake_runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "abi/driver_api.h"

#define FAKE extern "C" __attribute__((visibility("default")))
#define DRIVER(name) driver<decltype(&::name)>(#name)
#define DRIVER_V2(name) driver<decltype(&::name##_v2)>(#name)  // what the lookup answers of two or more versions

namespace {

constexpr int kMost = 16;
struct Card {
  char name[256];
  CUuuid uuid;
  size_t total;
  int bus, slot, domain;
};
struct Runtime {
  CUresult state = CUDA_ERROR_NOT_INITIALIZED;
  int count = 0;
  Card cards[kMost] = {};
  CUcontext primary[kMost] = {};
};

thread_local int current_device = 0;
thread_local int handed[2] = {-1, -1};

void* library() {
  static void* opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return opened;
}

template <class Function>
Function driver(const char* name) {
  using Lookup = CUresult (*)(const char*, void**, int, uint64_t, int*);
  static auto look_up = reinterpret_cast<Lookup>(dlsym(library(), "cuGetProcAddress_v2"));
  void* found = nullptr;
  int status = 0;
  if (!look_up || look_up(name, &found, 12080, 0, &status) != CUDA_SUCCESS || !found) found = dlsym(library(), name);
  return reinterpret_cast<Function>(found);
}

cudaError_t told(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? cudaError_t{2} : static_cast<cudaError_t>(static_cast<int>(result));
}

// In NVIDIA's order: an export table, cuInit, more tables, then one enumeration of the devices.
Runtime& runtime() {
  static Runtime made = [] {
    Runtime r;
    CUuuid id;
    std::memcpy(id.bytes, "berth-sim-table1", 16);
    const void *table = nullptr, *again = nullptr;
    if (!library() || (r.state = DRIVER(cuGetExportTable)(&table, &id)) != CUDA_SUCCESS) return r;
    if ((r.state = DRIVER(cuInit)(0)) != CUDA_SUCCESS) return r;
    if ((r.state = DRIVER(cuGetExportTable)(&again, &id)) != CUDA_SUCCESS) return r;
    if (again != table) r.state = CUDA_ERROR_INVALID_VALUE;
    DRIVER(cuDeviceGetCount)(&r.count);
    r.count = std::min(r.count, kMost);
    for (int i = 0; i < r.count; ++i) {
      Card& card = r.cards[i];
      DRIVER(cuDeviceGetName)(card.name, sizeof card.name, i);
      DRIVER_V2(cuDeviceGetUuid)(&card.uuid, i);
      DRIVER_V2(cuDeviceTotalMem)(&card.total, i);
      DRIVER(cuDeviceGetAttribute)(&card.bus, 33, i);
      DRIVER(cuDeviceGetAttribute)(&card.slot, 34, i);
      DRIVER(cuDeviceGetAttribute)(&card.domain, 50, i);
    }
    return r;
  }();
  return made;
}

bool is_card(int device) { return device >= 0 && device < runtime().count; }
bool take(int device) {
  handed[1] = handed[0];
  handed[0] = device;
  return is_card(device);
}

CUcontext primary(int card) {
  CUcontext& context = runtime().primary[card];
  if (!context) DRIVER(cuDevicePrimaryCtxRetain)(&context, card);
  return context;
}

// Each call that needs a context makes the thread's current.
CUresult use() {
  Runtime& all = runtime();
  if (all.state != CUDA_SUCCESS) return all.state;
  CUcontext context = primary(current_device);
  return context ? DRIVER(cuCtxSetCurrent)(context) : CUDA_ERROR_OUT_OF_MEMORY;
}
template <class Call>
cudaError_t with(Call call) {
  CUresult result = use();
  return told(result != CUDA_SUCCESS ? result : call());
}
template <class Call>
cudaError_t on(int device, Call call) {
  if (runtime().state != CUDA_SUCCESS) return told(runtime().state);
  return take(device) ? told(call()) : cudaErrorInvalidDevice;
}
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUdeviceptr* address(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

template <class Layout>
cudaError_t properties(void* out, int device) {
  return on(device, [&] {
    const Card& card = runtime().cards[device];
    auto* said = static_cast<Layout*>(out);
    std::memset(out, 0, sizeof(Layout));
    std::memcpy(said->name, card.name, sizeof card.name);
    said->uuid = card.uuid;
    said->totalGlobalMem = card.total;
    said->pciBusID = card.bus, said->pciDeviceID = card.slot, said->pciDomainID = card.domain;
    return CUDA_SUCCESS;
  });
}

}  // namespace

FAKE int fake_runtime_cards() { return runtime().count; }
FAKE int fake_runtime_handed(int back) { return handed[back]; }
FAKE void fake_runtime_uuid(int card, unsigned char* bytes) { std::memcpy(bytes, runtime().cards[card].uuid.bytes, 16); }

FAKE cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = RUNTIME_MAJOR * 1000;
  return cudaSuccess;
}

// Devices.
FAKE cudaError_t cudaGetDeviceCount(int* count) {
  if (runtime().state != CUDA_SUCCESS) return told(runtime().state);
  *count = runtime().count;
  return cudaSuccess;
}
FAKE cudaError_t cudaSetDevice(int device) {
  return on(device, [&] {
    current_device = device;
    return use();
  });
}
FAKE cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return told(runtime().state);
}
FAKE cudaError_t cudaSetValidDevices(int* devices, int count) {
  for (int i = 0; i < count; ++i)
    if (!take(devices[i])) return cudaErrorInvalidDevice;
  return cudaSuccess;
}
FAKE cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = runtime().count - 1;
  return told(runtime().state);
}
FAKE cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return on(device, [&] { return primary(device) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; });
}
#if RUNTIME_MAJOR >= 13
FAKE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) { return properties<RuntimeDeviceProp13>(out, device); }
#else
FAKE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) { return properties<RuntimeDeviceProp12>(out, device); }
FAKE cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* out, int device) { return properties<RuntimeDeviceProp12>(out, device); }
#endif
FAKE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return on(device, [&] { return DRIVER(cuDeviceGetAttribute)(value, attribute, device); });
}
FAKE cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return on(device, [&] { return DRIVER(cuDeviceGetPCIBusId)(text, length, device); });
}
FAKE cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned domain, bus, slot;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return cudaErrorInvalidValue;
  for (int i = 0; i < runtime().count; ++i) {
    const Card& card = runtime().cards[i];
    *device = i;
    if (unsigned(card.domain) == domain && unsigned(card.bus) == bus && unsigned(card.slot) == slot) return cudaSuccess;
  }
  return cudaErrorInvalidDevice;
}
FAKE cudaError_t cudaDeviceReset() {
  if (runtime().state != CUDA_SUCCESS) return told(runtime().state);
  runtime().primary[current_device] = nullptr;
  return told(DRIVER_V2(cuDevicePrimaryCtxReset)(current_device));
}

// Peers.
FAKE cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  take(device);
  return on(peer, [&] { return DRIVER(cuDeviceCanAccessPeer)(can, device, peer); });
}
FAKE cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device, int peer) {
  take(device);
  return on(peer, [&] { return DRIVER(cuDeviceGetP2PAttribute)(value, attribute, device, peer); });
}
FAKE cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (use() != CUDA_SUCCESS || !take(peer) || peer == current_device) return cudaErrorInvalidDevice;
  return told(DRIVER(cuCtxEnablePeerAccess)(primary(peer), flags));
}
FAKE cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (use() != CUDA_SUCCESS || !take(peer) || peer == current_device) return cudaErrorInvalidDevice;
  return told(DRIVER(cuCtxDisablePeerAccess)(primary(peer)));
}
FAKE cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  if (!take(to_device) || !take(from_device)) return cudaErrorInvalidDevice;
  return with([&] { return DRIVER(cuMemcpyPeer)(address(to), primary(to_device), address(from), primary(from_device), bytes); });
}
FAKE cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream) {
  if (!take(to_device) || !take(from_device)) return cudaErrorInvalidDevice;
  return with([&] {
    return DRIVER(cuMemcpyPeerAsync)(address(to), primary(to_device), address(from), primary(from_device), bytes, stream);
  });
}
FAKE cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* copy) {
  return take(copy->srcDevice) && take(copy->dstDevice) ? cudaSuccess : cudaErrorInvalidDevice;
}

// Memory.
FAKE cudaError_t cudaMalloc(void** out, size_t bytes) {
  return with([&] { return DRIVER_V2(cuMemAlloc)(address(out), bytes); });
}
FAKE cudaError_t cudaMallocArray(cudaArray_t* out, const cudaChannelFormatDesc*, size_t width, size_t height, unsigned) {  // of bytes
  CUDA_ARRAY_DESCRIPTOR description{width, height, 1, 1};
  return with([&] { return DRIVER_V2(cuArrayCreate)(reinterpret_cast<CUarray*>(out), &description); });
}
FAKE cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned flags) {
  return with([&] { return DRIVER(cuMemAllocManaged)(address(out), bytes, flags); });
}
FAKE cudaError_t cudaFree(void* pointer) {
  return with([&] { return DRIVER_V2(cuMemFree)(address(pointer)); });
}
FAKE cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return with([&] { return DRIVER_V2(cuMemGetInfo)(free, total); });
}
FAKE cudaError_t cudaMemset(void* to, int byte, size_t bytes) {
  return with([&] { return DRIVER_V2(cuMemsetD8)(address(to), static_cast<unsigned char>(byte), bytes); });
}
FAKE cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  return with([&] { return DRIVER(cuMemcpy)(address(to), address(from), bytes); });
}
FAKE cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* said, const void* pointer) {
  *said = {0, -2, nullptr, const_cast<void*>(pointer)};
  unsigned type = 0;
  if (use() != CUDA_SUCCESS || DRIVER(cuPointerGetAttribute)(&type, 2, address(pointer)) != CUDA_SUCCESS) return cudaSuccess;
  said->type = static_cast<int>(type);
  said->devicePointer = const_cast<void*>(pointer);
  return told(DRIVER(cuPointerGetAttribute)(&said->device, 9, address(pointer)));
}
#if RUNTIME_MAJOR >= 13
FAKE cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, RuntimePlace place, uint64_t flags, cudaStream_t stream) {
  auto location = __builtin_bit_cast(cudaMemLocation, place);
  take(location.id);
  return with([&] {
    return DRIVER_V2(cuMemPrefetchAsync)(address(pointer), bytes, location, static_cast<unsigned>(flags), stream);
  });
}
FAKE cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, RuntimePlace place) {
  return take(__builtin_bit_cast(cudaMemLocation, place).id) ? cudaSuccess : cudaErrorInvalidDevice;
}
#else
FAKE cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, RuntimePlace place, uint64_t stream, cudaStream_t) {
  auto device = static_cast<int>(place);
  take(device);
  CUmemLocation location{device < 0 ? 2 : 1, device < 0 ? 0 : device};
  return with([&] { return DRIVER_V2(cuMemPrefetchAsync)(address(pointer), bytes, location, 0, reinterpret_cast<CUstream>(stream)); });
}
FAKE cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, RuntimePlace place) {
  return take(static_cast<int>(place)) ? cudaSuccess : cudaErrorInvalidDevice;
}
#endif
FAKE cudaError_t cudaMemRangeGetAttribute(void* data, size_t size, cudaMemRangeAttribute attribute, const void* pointer, size_t bytes) {
  return with([&] { return DRIVER(cuMemRangeGetAttribute)(data, size, attribute, address(pointer), bytes); });
}
FAKE cudaError_t cudaMemcpyBatchAsync(void** to, const void** from, const size_t* sizes, size_t count, cudaMemcpyAttributes* hints,
                                      size_t* indices, size_t kinds, uint64_t eighth, uint64_t ninth) {
  auto stream = reinterpret_cast<CUstream>(RUNTIME_MAJOR >= 13 ? eighth : ninth);
  return with([&] {
    return DRIVER(cuMemcpyBatchAsync)(reinterpret_cast<CUdeviceptr*>(to), reinterpret_cast<CUdeviceptr*>(from),
                                      const_cast<size_t*>(sizes), count, hints, indices, kinds, nullptr, stream);
  });
}

// Streams and pools.
FAKE cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return with([&] { return DRIVER(cuStreamCreate)(stream, 0); });
}
FAKE cudaError_t cudaStreamDestroy(cudaStream_t stream) { return told(DRIVER_V2(cuStreamDestroy)(stream)); }
FAKE cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return with([&] { return DRIVER(cuStreamSynchronize)(stream); });
}
FAKE cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return with([&] { return DRIVER(cuStreamGetDevice)(stream, device); });
}
FAKE cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return with([&] { return DRIVER(cuMemAllocAsync)(address(out), bytes, stream); });
}
FAKE cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return with([&] { return DRIVER(cuMemAllocFromPoolAsync)(address(out), bytes, pool, stream); });
}
FAKE cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return with([&] { return DRIVER(cuMemFreeAsync)(address(pointer), stream); });
}
FAKE cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return on(device, [&] { return DRIVER(cuDeviceGetDefaultMemPool)(pool, device); });
}
FAKE cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return on(device, [&] { return DRIVER(cuDeviceGetMemPool)(pool, device); });
}
FAKE cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return on(device, [&] { return DRIVER(cuDeviceSetMemPool)(device, pool); });
}
FAKE cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* props) {
  return on(props->location.id, [&] { return DRIVER(cuMemPoolCreate)(pool, props); });
}
FAKE cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return told(DRIVER(cuMemPoolDestroy)(pool)); }
FAKE cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (!take(list[i].location.id)) return cudaErrorInvalidDevice;
  return told(DRIVER(cuMemPoolSetAccess)(pool, list, count));
}
FAKE cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return on(location->id, [&] { return DRIVER(cuMemPoolGetAccess)(flags, pool, location); });
}

// Graphs.
FAKE cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) { return told(DRIVER(cuGraphCreate)(graph, flags)); }
FAKE cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return told(DRIVER(cuGraphDestroy)(graph)); }
FAKE cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                          cudaMemAllocNodeParams* params) {
  take(params->poolProps.location.id);
  return told(DRIVER(cuGraphAddMemAllocNode)(node, graph, after, count, params));
}
FAKE cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, const void* fourth,
                                  size_t fifth, cudaGraphNodeParams* sixth) {
  bool edges = RUNTIME_MAJOR >= 13;
  size_t count = edges ? fifth : reinterpret_cast<size_t>(fourth);
  cudaGraphNodeParams* params = edges ? sixth : reinterpret_cast<cudaGraphNodeParams*>(fifth);
  take(params->alloc.poolProps.location.id);
  return told(DRIVER(cuGraphAddMemAllocNode)(node, graph, after, count, &params->alloc));
}
FAKE cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* params) {
  return told(DRIVER(cuGraphMemAllocNodeGetParams)(node, params));
}
FAKE cudaError_t cudaDeviceGraphMemTrim(int device) {
  return on(device, [&] { return DRIVER(cuDeviceGraphMemTrim)(device); });
}
