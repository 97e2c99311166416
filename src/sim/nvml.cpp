// The simulated management library: the same cards, seen by processes that need no driver.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "abi/nvml_api.h"
#include "sim/faults.h"
#include "sim/identity.h"
#include "sim/pages.h"
#include "sim/settings.h"
#include "sim/test_interface.h"
#include "sim/turns.h"

using namespace berth::sim;

namespace {

std::atomic<int> users{0};

// Every function but a few needs nvmlInit.
#define SIM_NVML(needs_init)                                                         \
  constinit static Entry entry_(__func__);                                           \
  if (int injected = pass_entry(entry_)) return static_cast<nvmlReturn_t>(injected); \
  if (needs_init && users <= 0) return NVML_ERROR_UNINITIALIZED

// And those of a device a valid handle, which is the card's number + 1.
#define SIM_NVML_DEVICE(device) \
  SIM_NVML(true);               \
  int card = card_of(device);   \
  if (card < 0) return NVML_ERROR_INVALID_ARGUMENT

int card_of(nvmlDevice_t device) {
  auto number = reinterpret_cast<uintptr_t>(device);
  return number >= 1 && number <= state().cards ? static_cast<int>(number - 1) : -1;
}

nvmlReturn_t start() {
  if (!attach_state().empty()) {
    std::fprintf(stderr, "berth-sim: %s\n", attach_state().c_str());
    return NVML_ERROR_UNKNOWN;
  }
  ++users;
  return NVML_SUCCESS;
}

nvmlReturn_t give_text(const std::string& text, char* buffer, unsigned length) {
  if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

nvmlReturn_t give_handle(int card, nvmlDevice_t* device) {
  if (!device) return NVML_ERROR_INVALID_ARGUMENT;
  if (card < 0) return NVML_ERROR_NOT_FOUND;
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<uintptr_t>(card) + 1);
  return NVML_SUCCESS;
}

nvmlReturn_t by_index(unsigned index, nvmlDevice_t* device) {
  if (index >= state().cards) return NVML_ERROR_INVALID_ARGUMENT;
  return give_handle(static_cast<int>(index), device);
}

nvmlReturn_t by_pci(const char* text, nvmlDevice_t* device) {
  return text ? give_handle(card_of_pci_text(text), device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t give_pci(int card, nvmlPciInfo_t* pci) {
  if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
  *pci = {};
  std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s", pci_text(card, false).c_str());
  std::snprintf(pci->busId, sizeof pci->busId, "%s", pci_text(card, true).c_str());
  pci->bus = static_cast<unsigned>(kFirstBus + card);
  pci->pciDeviceId = 0x233510de;
  pci->pciSubSystemId = 0x18be10de;
  return NVML_SUCCESS;
}

uint64_t used_bytes(int card) { return state().card[card].memory - free_bytes(card); }

// The caller says how many it has room for, and learns how many there are.
template <class Info>
nvmlReturn_t give_processes(int card, unsigned* count, Info* infos) {
  if (!count || (*count && !infos)) return NVML_ERROR_INVALID_ARGUMENT;
  auto usage = usage_of(card);
  bool fits = usage.size() <= *count;
  *count = static_cast<unsigned>(usage.size());
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < usage.size(); ++i) {
    infos[i].pid = static_cast<unsigned>(usage[i].pid);
    infos[i].usedGpuMemory = usage[i].bytes;
    if constexpr (requires { infos[i].gpuInstanceId; })
      infos[i].gpuInstanceId = infos[i].computeInstanceId = UINT32_MAX;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t give_none(unsigned* count) {
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit() {
  SIM_NVML(false);
  return start();
}

nvmlReturn_t nvmlInit_v2() {
  SIM_NVML(false);
  return start();
}

nvmlReturn_t nvmlInitWithFlags(unsigned) {
  SIM_NVML(false);
  return start();
}

nvmlReturn_t nvmlShutdown() {
  SIM_NVML(true);
  --users;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
      return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "Function Not Found";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned length) {
  SIM_NVML(true);
  return give_text(kDriverVersion, text, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  SIM_NVML(true);
  return give_text(std::string("13.") + kDriverVersion, text, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  SIM_NVML(false);
  return version ? (*version = kCudaVersion, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  SIM_NVML(false);
  return version ? (*version = kCudaVersion, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* text, unsigned length) {
  SIM_NVML(true);
  if (!text || !length) return NVML_ERROR_INVALID_ARGUMENT;
  char path[4096];
  ssize_t bytes = readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path, sizeof path);
  if (bytes <= 0) return NVML_ERROR_NOT_FOUND;
  std::snprintf(text, length, "%.*s", static_cast<int>(bytes), path);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  SIM_NVML(true);
  return count ? (*count = state().cards, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  SIM_NVML(true);
  return count ? (*count = state().cards, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
  SIM_NVML(true);
  return by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  SIM_NVML(true);
  return by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  SIM_NVML(true);
  if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
  for (int card = 0; card < static_cast<int>(state().cards); ++card)
    if (uuid_text(card) == uuid) return give_handle(card, device);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* text, nvmlDevice_t* device) {
  SIM_NVML(true);
  return by_pci(text, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* device) {
  SIM_NVML(true);
  return by_pci(text, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  SIM_NVML_DEVICE(device);
  return index ? (*index = static_cast<unsigned>(card), NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* minor) {
  SIM_NVML_DEVICE(device);
  return minor ? (*minor = static_cast<unsigned>(card), NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* text, unsigned length) {
  SIM_NVML_DEVICE(device);
  return give_text(device_name(card), text, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned length) {
  SIM_NVML_DEVICE(device);
  return give_text(uuid_text(card), text, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_NVML_DEVICE(device);
  return give_pci(card, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_NVML_DEVICE(device);
  return give_pci(card, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_NVML_DEVICE(device);
  return give_pci(card, pci);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int* mode) {
  SIM_NVML_DEVICE(device);
  return mode ? (*mode = state().card[card].compute_mode, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, int* mode) {
  SIM_NVML_DEVICE(device);
  return mode ? (*mode = 1, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
  SIM_NVML_DEVICE(device);
  return current && pending ? (*current = *pending = 0, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  SIM_NVML_DEVICE(device);
  return major && minor ? (*major = 9, *minor = 0, NVML_SUCCESS) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  SIM_NVML_DEVICE(device);
  if (!utilization) return NVML_ERROR_INVALID_ARGUMENT;
  *utilization = {busy_percent(card), 0};
  return NVML_SUCCESS;
}

// Recorded: here the reserved part counts as used; in the second form it has a field of its own.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  SIM_NVML_DEVICE(device);
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t used = used_bytes(card);
  uint64_t total = state().card[card].memory;
  *memory = {total + kReservedBytes, total - used, used + kReservedBytes};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  SIM_NVML_DEVICE(device);
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != (sizeof(nvmlMemory_v2_t) | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  uint64_t used = used_bytes(card);
  uint64_t total = state().card[card].memory;
  *memory = {memory->version, total + kReservedBytes, kReservedBytes, total - used, used};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t* infos) {
  SIM_NVML_DEVICE(device);
  return give_processes(card, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  SIM_NVML_DEVICE(device);
  return give_processes(card, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
  SIM_NVML_DEVICE(device);
  return give_processes(card, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
  SIM_NVML_DEVICE(device);
  return give_none(count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* list) {
  SIM_NVML_DEVICE(device);
  if (!list || list->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (list->version != (sizeof(nvmlProcessDetailList_t) | 1u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (list->mode != 0) return give_none(&list->numProcArrayEntries);  // graphics and MPS: none here
  return give_processes(card, &list->numProcArrayEntries, list->procArray);
}

uint64_t berth_sim_calls(const char* name) { return calls_of(name); }

}  // extern "C"
