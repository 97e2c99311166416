// What a process with virtual devices is told of them: how many there are, which is which, whose a context, stream or pointer
// is, and who can reach whom.
#include <string.h>
#include <strings.h>

#include "shim/call.h"
#include "shim/virtual_devices.h"

namespace berth::shim::virtual_device {
namespace {

using Seen = VirtualDevices::Seen;

// What a program is told: by the runtime's eyes the card, else the virtual device. Ours are always told the latter.
CUdevice told(uint32_t ordinal) {
  bool plain = guest_depth == 0 && virtual_devices->shares_contexts();
  return static_cast<CUdevice>(plain ? virtual_devices->devices[ordinal].card : ordinal);
}

// The first virtual device on a card; by the runtime's eyes the card.
CUdevice first_on(CUdevice card) {
  for (uint32_t i = 0; i < virtual_devices->count; ++i)
    if (virtual_devices->devices[i].card == card) return told(i);
  return card;
}

CUresult uuid(CUresult (*raw)(CUuuid*, CUdevice), CUuuid* uuid, CUdevice device) {
  Seen seen = virtual_devices->see(device);
  CUresult result = raw(uuid, seen.card);
  if (result == CUDA_SUCCESS && seen.valid && !seen.plain)
    ::memcpy(uuid->bytes, virtual_devices->devices[seen.ordinal].uuid.bytes, sizeof uuid->bytes);
  return result;
}

// Two on one card reach each other like two halves of it.
bool on_one_card(CUdevice a, CUdevice b) {
  Seen one = virtual_devices->see(a), other = virtual_devices->see(b);
  return one.valid && other.valid && !one.plain && !other.plain && one.ordinal != other.ordinal && one.card == other.card;
}

// Where contexts are shared nobody but we knows on whose behalf a stream was made.
CUresult note_stream(CUresult result, CUstream* stream) {
  Client* client = current_client();
  if (result != CUDA_SUCCESS || !client || !virtual_devices->shares_contexts()) return result;
  Allocation made;
  uint32_t ordinal;
  if (real::cuCtxGetCurrent(&made.context) != CUDA_SUCCESS || !virtual_devices->of_context(made.context, &ordinal)) return result;
  made.space = Space::stream;
  made.key = reinterpret_cast<uint64_t>(*stream);
  made.device = static_cast<uint8_t>(ordinal);
  client->table.insert(made);
  return result;
}

void forget_stream(CUstream stream) {
  Allocation gone;
  if (Client* client = current_client()) client->table.remove(Space::stream, reinterpret_cast<uint64_t>(stream), &gone);
}

}  // namespace

CUresult cuGetExportTable(decltype(&::cuGetExportTable) raw, const void** table, const CUuuid* id) {
  virtual_devices->meet_runtime();
  return raw(table, id);
}

CUresult cuDeviceGetCount(decltype(&::cuDeviceGetCount) raw, int* count) {
  CUresult result = raw(count);
  if (result == CUDA_SUCCESS && !(guest_depth == 0 && virtual_devices->shares_contexts()))
    *count = static_cast<int>(virtual_devices->count);
  return result;
}

CUresult cuDeviceGet(decltype(&::cuDeviceGet) raw, CUdevice* device, int ordinal) {
  Seen seen = virtual_devices->see(ordinal);
  CUresult result = raw(device, seen.card);
  if (result == CUDA_SUCCESS && seen.valid) *device = ordinal;
  return result;
}

CUresult cuDeviceGetUuid(decltype(&::cuDeviceGetUuid) raw, CUuuid* id, CUdevice device) { return uuid(raw, id, device); }
CUresult cuDeviceGetUuid_v2(decltype(&::cuDeviceGetUuid_v2) raw, CUuuid* id, CUdevice device) { return uuid(raw, id, device); }

// NCCL tells devices apart by this text alone, and has a runtime of its own: so it is the virtual device's for everybody.
CUresult cuDeviceGetPCIBusId(decltype(&::cuDeviceGetPCIBusId) raw, char* text, int length, CUdevice device) {
  Seen seen = virtual_devices->see(device);
  CUresult result = raw(text, length, seen.card);
  if (result != CUDA_SUCCESS || !seen.valid) return result;
  char ours[wire::kBusIdText];
  wire::virtual_bus_id(virtual_devices->devices[seen.ordinal].place, ours);
  // As long as the driver's own text, which is cut where there is no room, and with as many digits of the domain.
  ::memcpy(text, ours + 4, ::strnlen(text, sizeof ours - 5));
  return result;
}

CUresult cuDeviceGetByPCIBusId(decltype(&::cuDeviceGetByPCIBusId) raw, CUdevice* device, const char* text) {
  if (device && text)
    for (uint32_t i = 0; i < virtual_devices->count; ++i) {
      char own[20] = "";
      CUresult result;
      {
        Call ours;  // so that `i` means the virtual device
        result = virtual_device::cuDeviceGetPCIBusId(&raw::cuDeviceGetPCIBusId, own, sizeof own, static_cast<CUdevice>(i));
      }
      // Programs write the domain with four or eight digits, and in either case.
      const char* given = ::strncmp(text, "0000", 4) == 0 && ::strchr(text, ':') == text + 8 ? text + 4 : text;
      if (result != CUDA_SUCCESS || ::strcasecmp(given, own) != 0) continue;
      *device = told(i);
      return CUDA_SUCCESS;
    }
  CUresult result = raw(device, text);
  if (result != CUDA_SUCCESS || virtual_devices->shares_contexts()) return result;
  *device = -1;  // the cards themselves are not shown
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(decltype(&::cuDeviceGetAttribute) raw, int* value, CUdevice_attribute attribute, CUdevice device) {
  Seen seen = virtual_devices->see(device);
  CUresult result = raw(value, attribute, seen.card);
  // An intercept stands before this entry, so who asks can't be told by how deep we are; nobody else asks for these.
  bool plain = virtual_devices->shares_contexts() && static_cast<uint32_t>(device) < virtual_devices->cards;
  if (result != CUDA_SUCCESS || !seen.valid || plain) return result;
  if (attribute == abi::kDeviceAttrPciDomainId) *value = static_cast<int>(wire::kVirtualDomain);
  else if (attribute == abi::kDeviceAttrPciBusId) *value = static_cast<int>(wire::virtual_bus(virtual_devices->devices[seen.ordinal].place));
  else if (attribute == abi::kDeviceAttrPciDeviceId) *value = 0;
  return result;
}

CUresult cuCtxGetDevice(decltype(&::cuCtxGetDevice) raw, CUdevice* device) {
  CUresult result = raw(device);
  uint32_t ordinal;
  if (result == CUDA_SUCCESS && virtual_devices->of_context(nullptr, &ordinal)) *device = told(ordinal);
  return result;
}

CUresult cuCtxGetDevice_v2(decltype(&::cuCtxGetDevice_v2) raw, CUdevice* device, CUcontext context) {
  CUresult result = raw(device, context);
  uint32_t ordinal;
  if (result == CUDA_SUCCESS && virtual_devices->of_context(context, &ordinal)) *device = told(ordinal);
  return result;
}

CUresult cuStreamGetDevice(decltype(&::cuStreamGetDevice) raw, CUstream stream, CUdevice* device) {
  CUresult result = raw(stream, device);
  uint32_t ordinal;
  if (result == CUDA_SUCCESS && virtual_devices->of_stream(stream, raw == &raw::cuStreamGetDevice_ptsz, &ordinal))
    *device = told(ordinal);
  return result;
}

CUresult cuStreamCreate(decltype(&::cuStreamCreate) raw, CUstream* stream, unsigned flags) {
  return note_stream(raw(stream, flags), stream);
}
CUresult cuStreamCreateWithPriority(decltype(&::cuStreamCreateWithPriority) raw, CUstream* stream, unsigned flags, int priority) {
  return note_stream(raw(stream, flags, priority), stream);
}
CUresult cuStreamDestroy(decltype(&::cuStreamDestroy) raw, CUstream stream) {
  forget_stream(stream);
  return raw(stream);
}
CUresult cuStreamDestroy_v2(decltype(&::cuStreamDestroy_v2) raw, CUstream stream) {
  forget_stream(stream);
  return raw(stream);
}

CUresult cuDeviceCanAccessPeer(decltype(&::cuDeviceCanAccessPeer) raw, int* can, CUdevice device, CUdevice peer) {
  if (!can || !on_one_card(device, peer)) return raw(can, on_card(device), on_card(peer));
  *can = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(decltype(&::cuDeviceGetP2PAttribute) raw, int* value, CUdevice_P2PAttribute attribute,
                                 CUdevice device, CUdevice peer) {
  if (!value || attribute < abi::kP2PPerformanceRank || attribute > abi::kP2POnlyPartialNativeAtomic || !on_one_card(device, peer))
    return raw(value, attribute, on_card(device), on_card(peer));
  // Access, native atomics and arrays; the best rank.
  *value = attribute != abi::kP2PPerformanceRank && attribute != abi::kP2POnlyPartialNativeAtomic;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(decltype(&::cuDeviceGetP2PAtomicCapabilities) raw, unsigned* capabilities,
                                          const int* operations, unsigned count, CUdevice device, CUdevice peer) {
  if (!on_one_card(device, peer)) return raw(capabilities, operations, count, on_card(device), on_card(peer));
  return real::cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, device);
}

CUresult cuPointerGetAttribute(decltype(&::cuPointerGetAttribute) raw, void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  CUresult result = raw(data, attribute, pointer);
  if (result != CUDA_SUCCESS || attribute != abi::kPointerDeviceOrdinal) return result;
  int* ordinal = static_cast<int*>(data);
  if (*ordinal >= 0) *ordinal = told(virtual_devices->of_memory(pointer, *ordinal));
  return result;
}

CUresult cuPointerGetAttributes(decltype(&::cuPointerGetAttributes) raw, unsigned count, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr pointer) {
  CUresult result = raw(count, attributes, data, pointer);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    int* ordinal = attributes[i] == abi::kPointerDeviceOrdinal ? static_cast<int*>(data[i]) : nullptr;
    if (ordinal && *ordinal >= 0) *ordinal = told(virtual_devices->of_memory(pointer, *ordinal));
  }
  return result;
}

// Graphics: the card's numbers come back, and the first virtual device on each stands for it.
CUresult cuGLGetDevices(decltype(&::cuGLGetDevices) raw, unsigned* found, CUdevice* devices, unsigned room, int which) {
  CUresult result = raw(found, devices, room, which);
  for (unsigned i = 0; result == CUDA_SUCCESS && devices && i < *found && i < room; ++i) devices[i] = first_on(devices[i]);
  return result;
}
CUresult cuGLGetDevices_v2(decltype(&::cuGLGetDevices_v2) raw, unsigned* found, CUdevice* devices, unsigned room, int which) {
  return virtual_device::cuGLGetDevices(raw, found, devices, room, which);
}
CUresult cuVDPAUGetDevice(decltype(&::cuVDPAUGetDevice) raw, CUdevice* device, VdpDevice vdpau, VdpGetProcAddress* lookup) {
  CUresult result = raw(device, vdpau, lookup);
  if (result == CUDA_SUCCESS) *device = first_on(*device);
  return result;
}

}  // namespace berth::shim::virtual_device
