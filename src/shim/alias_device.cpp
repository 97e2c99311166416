// The runtime's functions that count, choose and name devices.
#include <stdio.h>
#include <string.h>

#include "abi/generated/runtime_bodies.h"
#include "shim/runtime_alias.h"
#include "wire/virtual_device.h"

namespace berth::shim::alias {
namespace {

// Makes a device current once the runtime has taken its card.
template <class Call>
cudaError_t choose(int device, Call call) {
  if (!known(device)) return call(on_card(device));
  int before = view->exchange(device);
  cudaError_t result = call(on_card(device));
  if (result == cudaSuccess) view->make_current(device);
  else view->exchange(before);
  return result;
}

bool on_bus(int device, int domain, int bus, int slot) {
  int own[3];
  view->bus(device, &own[0], &own[1], &own[2]);
  return own[0] == domain && own[1] == bus && own[2] == slot;
}

// Whether the runtime says of a card at these places what it says of it by attribute: then the layout is the one we know.
bool is_place_of(int card, int domain, int bus, int slot) {
  auto ask = find<decltype(&::cudaDeviceGetAttribute)>(Row::cudaDeviceGetAttribute);
  const struct { int attribute, told; } places[] = {
      {abi::kDeviceAttrPciDomainId, domain}, {abi::kDeviceAttrPciBusId, bus}, {abi::kDeviceAttrPciDeviceId, slot}};
  for (const auto& place : places) {
    int value = -1;
    if (!ask || ask(&value, place.attribute, card) != cudaSuccess || value != place.told) return false;
  }
  return true;
}

template <class Layout>
void name_virtual(void* properties, int device) {
  auto* told = static_cast<Layout*>(properties);
  if (!is_place_of(view->card_of(device), told->pciDomainID, told->pciBusID, told->pciDeviceID)) {
    log_line("cudaGetDeviceProperties of runtime %d has a layout that berth does not know", runtime_version());
    return;
  }
  view->uuid(device, reinterpret_cast<unsigned char*>(told->uuid.bytes));
  view->bus(device, &told->pciDomainID, &told->pciBusID, &told->pciDeviceID);
}

}  // namespace

cudaError_t cudaGetDeviceCount(decltype(&::cudaGetDeviceCount) real, int* number) {
  cudaError_t result = real(number);
  if (result == cudaSuccess) *number = count;
  return result;
}

cudaError_t cudaGetDevice(decltype(&::cudaGetDevice) real, int* device) {
  cudaError_t result = real(device);
  if (result == cudaSuccess) *device = thread_device();
  return result;
}

cudaError_t cudaSetDevice(decltype(&::cudaSetDevice) real, RuntimeDevice device) { return choose(device, real); }
cudaError_t cudaGLSetGLDevice(decltype(&::cudaGLSetGLDevice) real, RuntimeDevice device) { return choose(device, real); }
cudaError_t cudaVDPAUSetVDPAUDevice(decltype(&::cudaVDPAUSetVDPAUDevice) real, RuntimeDevice device, VdpDevice vdpau,
                                    VdpGetProcAddress* lookup) {
  return choose(device, [&](int card) { return real(card, vdpau, lookup); });
}

// A list of virtual devices is a list of cards to the runtime, each once; the first one is what a thread has that chooses none.
cudaError_t cudaSetValidDevices(decltype(&::cudaSetValidDevices) real, int* devices, int number) {
  if (!devices || number <= 0) {
    cudaError_t result = real(devices, number);
    if (result == cudaSuccess) __atomic_store_n(&default_device, 0, __ATOMIC_RELAXED);
    return result;
  }
  int cards[wire::kMaxDevices + 1], used = 0;
  for (int i = 0; i < number; ++i) {
    int card = on_card(devices[i]), at = 0;
    while (at < used && cards[at] != card) ++at;
    if (at == used && used < static_cast<int>(wire::kMaxDevices) + 1) cards[used++] = card;
  }
  cudaError_t result = real(cards, used);
  if (result == cudaSuccess) __atomic_store_n(&default_device, devices[0], __ATOMIC_RELAXED);
  return result;
}

cudaError_t cudaChooseDevice(decltype(&::cudaChooseDevice) real, int* device, const cudaDeviceProp* properties) {
  cudaError_t result = real(device, properties);
  if (result == cudaSuccess) *device = on_card_of(*device);
  return result;
}

cudaError_t cudaGLGetDevices(decltype(&::cudaGLGetDevices) real, unsigned* found, int* devices, unsigned room, cudaGLDeviceList which) {
  cudaError_t result = real(found, devices, room, which);
  for (unsigned i = 0; result == cudaSuccess && devices && found && i < *found && i < room; ++i) devices[i] = on_card_of(devices[i]);
  return result;
}
cudaError_t cudaVDPAUGetDevice(decltype(&::cudaVDPAUGetDevice) real, int* device, VdpDevice vdpau, VdpGetProcAddress* lookup) {
  cudaError_t result = real(device, vdpau, lookup);
  if (result == cudaSuccess) *device = on_card_of(*device);
  return result;
}
cudaError_t cudaExecutionCtxGetDevice(decltype(&::cudaExecutionCtxGetDevice) real, int* device, cudaExecutionContext_t context) {
  cudaError_t result = real(device, context);
  if (result == cudaSuccess) *device = on_card_of(*device);  // contexts belong to cards
  return result;
}

cudaError_t cudaStreamGetDevice(decltype(&::cudaStreamGetDevice) real, cudaStream_t stream, int* device) {
  if (!stream && view->current() < 0) thread_device();
  cudaError_t result = real(stream, device);
  if (result == cudaSuccess) *device = view->of_stream(stream, *device);
  return result;
}

// Of the runtimes of CUDA 12 and older both names have the places on the bus where 12 has them.
cudaError_t cudaGetDeviceProperties(decltype(&::cudaGetDeviceProperties) real, cudaDeviceProp* properties, RuntimeDevice device) {
  Meant meant(device);
  cudaError_t result = real(properties, on_card(device));
  if (result != cudaSuccess) return result;
  if (runtime_version() >= 13000) name_virtual<RuntimeDeviceProp13>(properties, device);
  else name_virtual<RuntimeDeviceProp12>(properties, device);
  return result;
}
cudaError_t cudaGetDeviceProperties_v2(decltype(&::cudaGetDeviceProperties_v2) real, cudaDeviceProp* properties, RuntimeDevice device) {
  Meant meant(device);
  cudaError_t result = real(properties, on_card(device));
  if (result == cudaSuccess) name_virtual<RuntimeDeviceProp12>(properties, device);
  return result;
}

cudaError_t cudaDeviceGetAttribute(decltype(&::cudaDeviceGetAttribute) real, int* value, cudaDeviceAttr attribute, RuntimeDevice device) {
  Meant meant(device);
  cudaError_t result = real(value, attribute, on_card(device));
  if (result != cudaSuccess) return result;
  int domain, bus, slot;
  view->bus(device, &domain, &bus, &slot);
  if (attribute == abi::kDeviceAttrPciDomainId) *value = domain;
  else if (attribute == abi::kDeviceAttrPciBusId) *value = bus;
  else if (attribute == abi::kDeviceAttrPciDeviceId) *value = slot;
  return result;
}

cudaError_t cudaDeviceGetPCIBusId(decltype(&::cudaDeviceGetPCIBusId) real, char* text, int length, RuntimeDevice device) {
  Meant meant(device);
  cudaError_t result = real(text, length, on_card(device));
  if (result != cudaSuccess || length <= 0) return result;
  int domain, bus, slot;
  view->bus(device, &domain, &bus, &slot);
  // As long as the runtime's own text, which is cut where there is no room.
  char ours[wire::kBusIdText];
  ::snprintf(ours, sizeof ours, "%04X:%02X:%02X.0", static_cast<unsigned>(domain) & 0xffff, static_cast<unsigned>(bus) & 0xff,
             static_cast<unsigned>(slot) & 0xff);
  ::memcpy(text, ours, ::strnlen(text, ::strlen(ours)));
  return result;
}

cudaError_t cudaDeviceGetByPCIBusId(decltype(&::cudaDeviceGetByPCIBusId) real, int* device, const char* text) {
  static constexpr char kNobody[] = "FFFF:FF:1F.0";
  unsigned domain, bus, slot;
  if (!device || !text || ::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return real(device, text);
  for (int i = 0; i < count; ++i)
    if (on_bus(i, static_cast<int>(domain), static_cast<int>(bus), static_cast<int>(slot))) {
      *device = i;
      return cudaSuccess;
    }
  return real(device, kNobody);  // the cards themselves are not shown
}

}  // namespace berth::shim::alias
