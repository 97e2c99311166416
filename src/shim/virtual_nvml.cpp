// Virtual devices in the management library: handles of ours, which the entries replace by the card's wherever one is handed in
// (forwarders.inc, BERTH_OF_VIRTUAL), and bodies for what tells devices apart. It shows all of the job's virtual devices, in their
// order; CUDA_VISIBLE_DEVICES means nothing to it, as on cards.
#include "shim/virtual_nvml.h"

#include <stdio.h>
#include <string.h>

#include "abi/generated/nvml_real.h"
#include "abi/generated/nvml_rows.h"
#include "shim/visible_devices.h"
#include "wire/virtual_device.h"

using namespace berth;
using namespace berth::shim;
using abi::nvml::Row;

namespace {

struct Handle {
  nvmlDevice_t card;  // read by the entries: must stay the first word
  uint64_t place;     // of the virtual device
};

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) Handle berth_nvml_handles[wire::kMaxDevices];
__attribute__((visibility("hidden"))) void* berth_nvml_raw[abi::nvml::kRows];
extern __attribute__((visibility("hidden"))) void* const berth_nvml_of_virtual[];
}
static_assert(sizeof berth_nvml_handles == 512);  // forwarders.inc: BERTH_HANDLE_BYTES

namespace {

uint32_t count = 0;
wire::Uuid uuids[wire::kMaxDevices];

template <class Function>
Function raw(Row row) {
  return reinterpret_cast<Function>(berth_nvml_raw[static_cast<int>(row)]);
}
#define RAW(name) raw<decltype(&::name)>(Row::name)

nvmlDevice_t handle_of(uint32_t place) { return reinterpret_cast<nvmlDevice_t>(&berth_nvml_handles[place]); }

// The virtual device behind a handle of ours, else -1.
int place_of(nvmlDevice_t device) {
  uintptr_t offset = reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(berth_nvml_handles);
  return offset < count * sizeof(Handle) && offset % sizeof(Handle) == 0 ? static_cast<int>(offset / sizeof(Handle)) : -1;
}

nvmlDevice_t card_of(nvmlDevice_t device) {
  int place = place_of(device);
  return place < 0 ? device : berth_nvml_handles[place].card;
}

// The first virtual device on a card; the card's own handle if there is none.
nvmlDevice_t first_on(nvmlDevice_t card) {
  for (uint32_t i = 0; i < count; ++i)
    if (berth_nvml_handles[i].card == card) return handle_of(i);
  return card;
}

nvmlReturn_t get_count(unsigned* number) {
  if (!number) return NVML_ERROR_INVALID_ARGUMENT;
  *number = count;
  return NVML_SUCCESS;
}

nvmlReturn_t by_index(unsigned index, nvmlDevice_t* device) {
  if (index >= count || !device) return NVML_ERROR_INVALID_ARGUMENT;
  *device = handle_of(index);
  return NVML_SUCCESS;
}

nvmlReturn_t by_uuid(const char* text, nvmlDevice_t* device) {
  if (!text || !device) return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < count; ++i) {
    char own[kUuidText];
    format_uuid(uuids[i], own);
    if (::strcmp(text, own) != 0) continue;
    *device = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t by_uuid_value(const nvmlUUID_v1_t* id, nvmlDevice_t* device) {
  if (!id || !device) return NVML_ERROR_INVALID_ARGUMENT;
  if (id->type == 1) return by_uuid(id->value.str, device);
  for (uint32_t i = 0; id->type == 2 && i < count; ++i)
    if (::memcmp(uuids[i].bytes, id->value.bytes, sizeof uuids[i].bytes) == 0) return by_index(i, device);
  return id->type == 2 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

// "domain:bus:device", in hexadecimal, with or without ".function"; the domain may be left out.
nvmlReturn_t by_bus_id(const char* text, nvmlDevice_t* device) {
  if (!text || !device) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain, bus, slot;
  if (::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < count; ++i)
    if (domain == wire::kVirtualDomain && bus == wire::virtual_bus(i) && slot == 0) return by_index(i, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t by_serial(const char* text, nvmlDevice_t* device) {
  nvmlReturn_t result = RAW(nvmlDeviceGetHandleBySerial)(text, device);
  if (result == NVML_SUCCESS) *device = first_on(*device);
  return result;
}

nvmlReturn_t get_index(nvmlDevice_t device, unsigned* index) {
  int place = place_of(device);
  if (place < 0 || !index) return RAW(nvmlDeviceGetIndex)(device, index);
  *index = static_cast<unsigned>(place);
  return NVML_SUCCESS;
}

nvmlReturn_t get_uuid(nvmlDevice_t device, char* text, unsigned length) {
  int place = place_of(device);
  nvmlReturn_t result = RAW(nvmlDeviceGetUUID)(card_of(device), text, length);
  if (place < 0 || result != NVML_SUCCESS) return result;
  char own[kUuidText];
  format_uuid(uuids[place], own);
  ::strncpy(text, own, length);
  return result;
}

template <class Info>
void place_on_bus(int place, Info* info, char (*text)[wire::kBusIdText]) {
  info->domain = wire::kVirtualDomain;
  info->bus = wire::virtual_bus(static_cast<uint32_t>(place));
  info->device = 0;
  wire::virtual_bus_id(static_cast<uint32_t>(place), *text);
}

// The two older ones end before `busId`.
nvmlReturn_t get_pci(Row row, nvmlDevice_t device, nvmlPciInfo_t* info, bool has_long_id) {
  int place = place_of(device);
  nvmlReturn_t result = raw<decltype(&::nvmlDeviceGetPciInfo)>(row)(card_of(device), info);
  if (place < 0 || result != NVML_SUCCESS) return result;
  char text[wire::kBusIdText];
  place_on_bus(place, info, &text);
  ::strncpy(info->busIdLegacy, text + 4, sizeof info->busIdLegacy);  // four digits of the domain
  if (has_long_id) ::strncpy(info->busId, text, sizeof info->busId);
  return result;
}
nvmlReturn_t get_pci_v1(nvmlDevice_t device, nvmlPciInfo_t* info) { return get_pci(Row::nvmlDeviceGetPciInfo, device, info, false); }
nvmlReturn_t get_pci_v2(nvmlDevice_t device, nvmlPciInfo_t* info) { return get_pci(Row::nvmlDeviceGetPciInfo_v2, device, info, false); }
nvmlReturn_t get_pci_v3(nvmlDevice_t device, nvmlPciInfo_t* info) { return get_pci(Row::nvmlDeviceGetPciInfo_v3, device, info, true); }
nvmlReturn_t get_pci_extended(nvmlDevice_t device, nvmlPciInfoExt_v1_t* info) {
  int place = place_of(device);
  nvmlReturn_t result = RAW(nvmlDeviceGetPciInfoExt)(card_of(device), info);
  if (place < 0 || result != NVML_SUCCESS) return result;
  char text[wire::kBusIdText];
  place_on_bus(place, info, &text);
  ::strncpy(info->busId, text, sizeof info->busId);
  return result;
}

// Two on one card reach each other in every way.
nvmlReturn_t peer_status(nvmlDevice_t one, nvmlDevice_t other, int what, int* status) {
  int a = place_of(one), b = place_of(other);
  if (a < 0 || b < 0 || a == b || !status || card_of(one) != card_of(other))
    return RAW(nvmlDeviceGetP2PStatus)(card_of(one), card_of(other), what, status);
  *status = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t wait_for_event(void* set, nvmlEventData_t* data, unsigned patience) {
  nvmlReturn_t result = RAW(nvmlEventSetWait)(set, data, patience);
  if (result == NVML_SUCCESS && data) data->device = first_on(data->device);
  return result;
}
nvmlReturn_t wait_for_event_v2(void* set, nvmlEventData_t* data, unsigned patience) {
  nvmlReturn_t result = RAW(nvmlEventSetWait_v2)(set, data, patience);
  if (result == NVML_SUCCESS && data) data->device = first_on(data->device);
  return result;
}

struct Body {
  Row row;
  void* function;
};
#define BODY(name, function) {Row::name, reinterpret_cast<void*>(&function)}
const Body kBodies[] = {
    BODY(nvmlDeviceGetCount, get_count), BODY(nvmlDeviceGetCount_v2, get_count),
    BODY(nvmlDeviceGetHandleByIndex, by_index), BODY(nvmlDeviceGetHandleByIndex_v2, by_index),
    BODY(nvmlDeviceGetHandleByUUID, by_uuid), BODY(nvmlDeviceGetHandleByUUIDV, by_uuid_value),
    BODY(nvmlDeviceGetHandleByPciBusId, by_bus_id), BODY(nvmlDeviceGetHandleByPciBusId_v2, by_bus_id),
    BODY(nvmlDeviceGetHandleBySerial, by_serial), BODY(nvmlDeviceGetIndex, get_index), BODY(nvmlDeviceGetUUID, get_uuid),
    BODY(nvmlDeviceGetPciInfo, get_pci_v1), BODY(nvmlDeviceGetPciInfo_v2, get_pci_v2), BODY(nvmlDeviceGetPciInfo_v3, get_pci_v3),
    BODY(nvmlDeviceGetPciInfoExt, get_pci_extended), BODY(nvmlDeviceGetP2PStatus, peer_status),
    BODY(nvmlEventSetWait, wait_for_event), BODY(nvmlEventSetWait_v2, wait_for_event_v2),
};

}  // namespace

namespace berth::shim {

void install_virtual_handles(Client& client, const Introduction&) {
  const wire::DaemonPage* page = client.page();
  if (!page->virtual_devices || count) return;
  uint32_t number = page->virtual_devices < wire::kMaxDevices ? page->virtual_devices : wire::kMaxDevices;
  for (uint32_t i = 0; i < number; ++i) {
    char card[kUuidText];
    format_uuid(page->devices[i].card, card);
    if (real::nvmlDeviceGetHandleByUUID(card, &berth_nvml_handles[i].card) != NVML_SUCCESS) {
      log_line("the management library knows no card %s", card);
      return;
    }
    berth_nvml_handles[i].place = i;
    uuids[i] = page->devices[i].uuid;
  }
  count = number;
  for (int row = 0; row < abi::nvml::kRows; ++row) {
    berth_nvml_raw[row] = berth_nvml_slots[row];
    __atomic_store_n(&berth_nvml_slots[row], const_cast<void*>(berth_nvml_of_virtual[row]), __ATOMIC_RELEASE);
  }
  for (const Body& body : kBodies) __atomic_store_n(&berth_nvml_slots[static_cast<int>(body.row)], body.function, __ATOMIC_RELEASE);
}

}  // namespace berth::shim
