#include "shim/driver.h"

#include <string.h>

#include "shim/call.h"
#include "shim/pools.h"
#include "shim/virtual_devices.h"

using namespace berth;
using namespace berth::shim;

namespace {

constexpr int kCount = abi::driver::kRows;

struct NameList {
  const char* names[kCount];
};
constexpr NameList name_list() {
  NameList list{};
  for (int i = 0; i < kCount; ++i) list.names[i] = abi::driver::kRowFacts[i].name;
  return list;
}
constexpr NameList kNames = name_list();

// In place of a name that the real library lacks, or of all when there is none.
int no_such_function() { return CUDA_ERROR_NOT_SUPPORTED; }
int no_driver() { return CUDA_ERROR_NO_DEVICE; }

bool is_driver_name(const char* name) {
  return name[0] == 'c' && name[1] == 'u' && ((name[2] >= 'A' && name[2] <= 'Z') || ::strncmp(name, "cudbg", 5) == 0);
}

}  // namespace

namespace berth::shim {

RealLibrary& real_driver() {
  static constinit RealLibrary library(LibraryNames{"libcuda.so.1", kNames.names, kCount, berth_driver_slots,
                                                    &no_such_function, &is_driver_name});
  return library;
}

bool current_device(uint32_t* device) {
  CUdevice ordinal = -1;
  if (real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0) return false;
  *device = static_cast<uint32_t>(ordinal);
  return true;
}

void hold_caller(Client& client) {
  uint32_t device;
  if ((gate_bits() & wire::kGateHold) && current_device(&device)) client.activity.wait_in_caller(card_of(device));
}

bool current_context(AllocCall& call, CUcontext* context, uint32_t* device) {
  if (!current_device(device) || real::cuCtxGetCurrent(context) != CUDA_SUCCESS) return false;
  Allocation known;
  uint64_t key = reinterpret_cast<uint64_t>(*context);
  if (call.client().table.find(Space::context, key, &known)) return true;
  Allocation found;
  found.space = Space::context;
  found.kind = wire::Kind::overhead;
  found.key = key;
  found.device = static_cast<uint8_t>(*device);
  call.client().reserve(*device, wire::Kind::overhead, 0, wire::Force::taken, &found.bytes);
  call.client().table.insert(found);
  call.client().refresh(*device);
  return true;
}

Introduction introduce_driver() {
  Introduction introduction{};
  introduction.role = wire::Role::client;
  real::cuDriverGetVersion(&introduction.driver_version);
  introduction.unknown_symbols = real_driver().audit().unknown;
  introduction.missing_symbols = real_driver().audit().missing;
  int count = 0;
  real::cuDeviceGetCount(&count);
  for (int i = 0; i < count && i < static_cast<int>(wire::kMaxDevices); ++i) {
    CUdevice device;
    CUuuid uuid{};
    if (real::cuDeviceGet(&device, i) != CUDA_SUCCESS) continue;
    if (real::cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) real::cuDeviceGetUuid(&uuid, device);
    ::memcpy(introduction.devices[i].bytes, uuid.bytes, sizeof uuid.bytes);
    introduction.device_count = static_cast<uint32_t>(i) + 1;
  }
  return introduction;
}

bool AllocCall::reserve(const Allocation& what, wire::Force force, uint64_t* granted) {
  if (client().reserve(what, force, granted)) return true;
  return give_back_idle_pool_memory(client(), what.device) && client().reserve(what, force, granted);
}

bool AllocCall::reserve(uint32_t device, wire::Kind kind, uint64_t bytes, wire::Force force, uint64_t* granted) {
  Allocation what;
  what.device = static_cast<uint8_t>(device);
  what.kind = kind;
  what.bytes = bytes;
  return reserve(what, force, granted);
}

CUresult AllocCall::reserve_context(uint32_t device, uint64_t* granted) {
  for (bool again = true;; again = false) {
    wire::GrantStatus why = wire::GrantStatus::over_quota;
    if (client().reserve(device, wire::Kind::overhead, 0, wire::Force::first_context, granted, &why)) return CUDA_SUCCESS;
    if (why == wire::GrantStatus::unavailable) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!again || !give_back_idle_pool_memory(client(), device)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

bool AllocCall::wait_for_leaving(uint32_t device, uint64_t bytes, int tries) {
  const wire::PageDevice* numbers = client().device(device);
  if (!numbers || numbers->leaving_bytes.load(std::memory_order_relaxed) == 0 || tries >= 200) {
    client().notice(wire::NoticeCode::driver_full, device, bytes, "");
    return false;
  }
  sleep_ns(10'000'000);
  return true;
}

}  // namespace berth::shim

// Called from the stubs in the slot table: before the real library is open every entry comes here.
extern "C" __attribute__((visibility("hidden"))) void* berth_driver_resolve(uint32_t row) {
  if (!real_driver().open()) return reinterpret_cast<void*>(&no_driver);
  return __atomic_load_n(&berth_driver_slots[row], __ATOMIC_ACQUIRE);
}

// Called from the assembly gates of functions whose signature we don't know, when the gate word asks for anything.
extern "C" __attribute__((visibility("hidden"))) void* berth_wait_at_gate(uint32_t row) {
  pass_gate();
  if (Client* client = current_client()) hold_caller(*client);
  return __atomic_load_n(&berth_driver_slots[row], __ATOMIC_ACQUIRE);
}

extern "C" BERTH_EXPORT const char berth_shim_version[] = BERTH_VERSION;
