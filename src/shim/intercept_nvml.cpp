// NVML as the job sees it: memory of its virtual device, its own processes. The same story as cuMemGetInfo and the device
// properties tell. A program that uses NVML only (nvidia-smi) attaches as a viewer.
#include <string.h>

#include "abi/generated/nvml_intercepts.h"
#include "abi/generated/nvml_real.h"
#include "abi/generated/nvml_rows.h"
#include "shim/compute_mode.h"
#include "shim/real_library.h"
#include "shim/virtual_nvml.h"

using namespace berth;
using namespace berth::shim;

namespace {

constexpr int kCount = abi::nvml::kRows;

struct NameList {
  const char* names[kCount];
};
constexpr NameList name_list() {
  NameList list{};
  for (int i = 0; i < kCount; ++i) list.names[i] = abi::nvml::kRowFacts[i].name;
  return list;
}
constexpr NameList kNames = name_list();

int no_such_function() { return NVML_ERROR_FUNCTION_NOT_FOUND; }
int no_library() { return NVML_ERROR_LIBRARY_NOT_FOUND; }
bool is_nvml_name(const char* name) { return ::strncmp(name, "nvml", 4) == 0; }

RealLibrary& real_nvml() {
  static constinit RealLibrary library(LibraryNames{"libnvidia-ml.so.1", kNames.names, kCount, berth_nvml_slots,
                                                    &no_such_function, &is_nvml_name});
  return library;
}

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" as 16 bytes.
bool uuid_of(nvmlDevice_t device, wire::Uuid* out) {
  char text[96] = "";
  if (real::nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS) return false;
  int nibbles = 0;
  *out = {};
  for (const char* c = ::strchr(text, '-'); c && *c && nibbles < 32; ++c) {
    int value = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
    if (value < 0) continue;
    out->bytes[nibbles / 2] = static_cast<uint8_t>(out->bytes[nibbles / 2] << 4 | value);
    ++nibbles;
  }
  return nibbles == 32;
}

nvmlReturn_t attach_viewer(nvmlReturn_t result) {
  if (result != NVML_SUCCESS || current_client()) return result;
  Introduction introduction{};
  introduction.role = wire::Role::viewer;
  introduction.unknown_symbols = real_nvml().audit().unknown;
  introduction.missing_symbols = real_nvml().audit().missing;
  unsigned count = 0;
  real::nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count && i < wire::kMaxDevices; ++i) {
    nvmlDevice_t device;
    if (real::nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS && uuid_of(device, &introduction.devices[i]))
      introduction.device_count = i + 1;
  }
  attach(introduction, &install_virtual_handles);
  return result;
}

// The device's place in the page; -1: this process is no client, or the daemon doesn't know the device.
int place_of(const Client& client, nvmlDevice_t device) {
  wire::Uuid uuid;
  if (!uuid_of(device, &uuid)) return -1;
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    const wire::PageDevice* numbers = client.device(i);
    if (numbers && ::memcmp(&numbers->uuid, &uuid, sizeof uuid) == 0) return static_cast<int>(i);
  }
  return -1;
}

// The job's numbers of the device, or null.
const wire::PageDevice* numbers_of(const Client& client, nvmlDevice_t device) {
  int place = place_of(client, device);
  return place < 0 ? nullptr : client.device(static_cast<uint32_t>(place));
}

struct MemoryView {
  unsigned long long total, free;
  bool own_total;  // the total is the quota: nothing of it is reserved by the driver
};

MemoryView view_of(const wire::PageDevice& numbers, unsigned long long real_total, unsigned long long real_free) {
  MemoryView view{real_total, real_free, false};
  if (numbers.quota_bytes != wire::kNoQuota) {
    view.total = numbers.total_bytes;
    view.own_total = true;
  }
  unsigned long long ours = numbers.free_bytes.load(std::memory_order_relaxed);
  if (ours < view.free) view.free = ours;
  if (view.total < view.free) view.free = view.total;
  return view;
}

// The job's processes on a device: all on the card, or those that hold memory of a virtual device.
class Company {
 public:
  Company(const Client& client, nvmlDevice_t device) : page_(*client.page()) {
    int place = page_.virtual_devices ? place_of(client, device) : -1;
    if (place >= 0) devices_ = uint32_t{1} << place;
  }
  bool has(unsigned pid) const {
    uint32_t count = page_.pid_count.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count && i < wire::kMaxJobPids; ++i)
      if (page_.pids[i].load(std::memory_order_relaxed) == pid)
        return !devices_ || page_.pid_devices[i].load(std::memory_order_relaxed) & devices_;
    return false;
  }

 private:
  const wire::DaemonPage& page_;
  uint32_t devices_ = 0;  // a bit, or all
};

// Asks the real library for the whole list and hands on what is the job's. The caller's array and count as NVML has them.
template <class Info, class Real>
nvmlReturn_t filtered(const Company& company, unsigned* count, Info* infos, Real real) {
  if (!count || (*count && !infos)) return real(count, infos);
  constexpr unsigned kMost = 1024;
  constexpr size_t kBytes = kMost * sizeof(Info);
  auto* all = static_cast<Info*>(map_pages(kBytes));
  if (!all) return real(count, infos);
  unsigned there = kMost, kept = 0;
  nvmlReturn_t result = real(&there, all);
  if (result == NVML_SUCCESS) {
    for (unsigned i = 0; i < there && i < kMost; ++i) {
      if (!company.has(all[i].pid)) continue;
      if (kept < *count) infos[kept] = all[i];
      ++kept;
    }
    if (kept > *count) result = NVML_ERROR_INSUFFICIENT_SIZE;
    *count = kept;
  } else {
    *count = there;
  }
  unmap_pages(all, kBytes);
  return result;
}

}  // namespace

namespace berth::shim::intercept {

nvmlReturn_t nvmlInit(ContextCall&, decltype(&::nvmlInit) real) { return attach_viewer(real()); }
nvmlReturn_t nvmlInit_v2(ContextCall&, decltype(&::nvmlInit_v2) real) { return attach_viewer(real()); }
nvmlReturn_t nvmlInitWithFlags(ContextCall&, decltype(&::nvmlInitWithFlags) real, unsigned flags) {
  return attach_viewer(real(flags));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(QueryCall& call, decltype(&::nvmlDeviceGetMemoryInfo) real, nvmlDevice_t device,
                                     nvmlMemory_t* memory) {
  nvmlReturn_t result = real(device, memory);
  const wire::PageDevice* numbers = result == NVML_SUCCESS ? numbers_of(call.client(), device) : nullptr;
  if (!numbers) return result;
  MemoryView view = view_of(*numbers, memory->total, memory->free);
  *memory = {view.total, view.free, view.total - view.free};
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(QueryCall& call, decltype(&::nvmlDeviceGetMemoryInfo_v2) real, nvmlDevice_t device,
                                        nvmlMemory_v2_t* memory) {
  nvmlReturn_t result = real(device, memory);
  const wire::PageDevice* numbers = result == NVML_SUCCESS ? numbers_of(call.client(), device) : nullptr;
  if (!numbers) return result;
  MemoryView view = view_of(*numbers, memory->total, memory->free);
  memory->total = view.total;
  memory->free = view.free;
  if (view.own_total) memory->reserved = 0;
  memory->used = view.total - view.free - memory->reserved;
  return result;
}

// The stricter of berth's mode and what the card itself says, which is left as it is.
nvmlReturn_t nvmlDeviceGetComputeMode(QueryCall& call, decltype(&::nvmlDeviceGetComputeMode) real, nvmlDevice_t device, int* mode) {
  nvmlReturn_t result = real(device, mode);
  const wire::PageDevice* numbers = result == NVML_SUCCESS ? numbers_of(call.client(), device) : nullptr;
  if (numbers) *mode = stricter_mode(*mode, *numbers);
  return result;
}

#define BERTH_PROCESS_LIST(name, Info)                                                                                   \
  nvmlReturn_t name(QueryCall& call, decltype(&::name) real, nvmlDevice_t device, unsigned* count, Info* infos) {        \
    Company company(call.client(), device);                                                                              \
    return filtered(company, count, infos, [&](unsigned* n, Info* list) { return real(device, n, list); });                 \
  }
BERTH_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
BERTH_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
BERTH_PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
BERTH_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
BERTH_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
BERTH_PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
BERTH_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
BERTH_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
BERTH_PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
#undef BERTH_PROCESS_LIST

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(QueryCall& call, decltype(&::nvmlDeviceGetRunningProcessDetailList) real,
                                                   nvmlDevice_t device, nvmlProcessDetailList_t* list) {
  nvmlReturn_t result = real(device, list);
  if (result != NVML_SUCCESS || !list->procArray) return result;
  Company company(call.client(), device);
  unsigned kept = 0;
  for (unsigned i = 0; i < list->numProcArrayEntries; ++i)
    if (company.has(list->procArray[i].pid)) list->procArray[kept++] = list->procArray[i];
  list->numProcArrayEntries = kept;
  return result;
}

}  // namespace berth::shim::intercept

extern "C" __attribute__((visibility("hidden"))) void* berth_nvml_resolve(uint32_t row) {
  if (!real_nvml().open()) return reinterpret_cast<void*>(&no_library);
  return __atomic_load_n(&berth_nvml_slots[row], __ATOMIC_ACQUIRE);
}

// The management library has no submissions, so no gate of its entries ever shuts.
extern "C" __attribute__((visibility("hidden"))) void* berth_wait_at_gate(uint32_t row) {
  return __atomic_load_n(&berth_nvml_slots[row], __ATOMIC_ACQUIRE);
}

extern "C" BERTH_EXPORT const char berth_shim_version[] = BERTH_VERSION;
