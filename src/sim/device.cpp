// cuInit and what one may ask of devices.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "sim/call.h"
#include "sim/context.h"
#include "sim/identity.h"
#include "sim/settings.h"
#include "sim/variant.h"

using namespace berth::sim;

namespace {

// One word on a page that the kernel wipes in the child of a fork: there the driver is lost, as on the real one.
std::atomic<std::atomic<uint32_t>*> alive_word{nullptr};
std::atomic<bool> over{false};

// The library is never unloaded: this is the end of the process, after the program's own exit handlers.
__attribute__((destructor)) void end_of_process() { over = true; }

// CUDA_VISIBLE_DEVICES: indices and UUIDs, up to the first that is none.
std::vector<int> visible_cards() {
  std::vector<int> cards;
  int count = static_cast<int>(state().cards);
  if (!settings().visible) {
    for (int i = 0; i < count; ++i) cards.push_back(i);
    return cards;
  }
  std::string list = *settings().visible + ",";
  for (size_t at = 0; at < list.size();) {
    size_t end = list.find(',', at);
    std::string item = list.substr(at, end - at);
    at = end + 1;
    int card = -1;
    char* rest = nullptr;
    long index = std::strtol(item.c_str(), &rest, 10);
    if (item.starts_with("GPU-")) {
      for (int i = 0; i < count; ++i)
        if (item.size() > 4 && uuid_text(i).starts_with(item)) card = i;
    } else if (!item.empty() && *rest == '\0' && index >= 0 && index < count) {
      card = static_cast<int>(index);
    }
    if (card < 0) break;
    for (int seen : cards)
      if (seen == card) return {};  // one card twice: none at all
    cards.push_back(card);
  }
  return cards;
}

CUresult start_driver() {
  if (!attach_state().empty()) {
    std::fprintf(stderr, "berth-sim: %s\n", attach_state().c_str());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  auto cards = visible_cards();
  if (cards.empty()) return CUDA_ERROR_NO_DEVICE;
  auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, size, MADV_WIPEONFORK) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!start_engine()) return CUDA_ERROR_OPERATING_SYSTEM;
  reserve_addresses();
  for (int card : cards) make_device(card);
  auto* word = new (page) std::atomic<uint32_t>(1);
  alive_word.store(word, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult with_device(CUdevice ordinal, Device** device) {
  *device = device_of(ordinal);
  return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

namespace berth::sim {

Life life() {
  if (over.load(std::memory_order_relaxed)) return Life::over;
  auto* word = alive_word.load(std::memory_order_acquire);
  if (!word) return Life::before;
  return word->load(std::memory_order_relaxed) ? Life::alive : Life::forked;
}

}  // namespace berth::sim

#define SIM_DEVICE_CALL(ordinal) \
  SIM_CALL(kDriver);             \
  Device* device = nullptr;      \
  if (CUresult bad = with_device(ordinal, &device)) return bad

extern "C" {

CUresult cuInit(unsigned flags) {
  SIM_CALL(kNothing);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (life() == Life::over) return CUDA_ERROR_DEINITIALIZED;
  if (life() == Life::forked) return CUDA_ERROR_NOT_INITIALIZED;
  static std::mutex once;
  std::lock_guard guard(once);
  if (life() == Life::alive) return CUDA_SUCCESS;
  static CUresult failed = CUDA_SUCCESS;  // what failed once fails again, as on the real driver
  if (!failed) failed = start_driver();
  return failed;
}

CUresult cuDriverGetVersion(int* version) {
  SIM_CALL(kNothing);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = variant().cuda_version;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_CALL(kDriver);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  SIM_CALL(kDriver);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(process().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(length), "%s", device_name(device->card).c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, state().card[device->card].uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, state().card[device->card].uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char*, unsigned*, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  return CUDA_ERROR_NOT_SUPPORTED;  // of Windows
}

CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = static_cast<unsigned>(std::min<uint64_t>(state().card[device->card].memory, UINT32_MAX));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = state().card[device->card].memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  *major = 9, *minor = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  SIM_CALL(kDriver);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  return device_attribute(device->card, attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  SIM_DEVICE_CALL(ordinal);
  if (!text || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<size_t>(length), "%s", pci_text(device->card, false).c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* result, const char* text) {
  SIM_CALL(kDriver);
  if (!result || !text) return CUDA_ERROR_INVALID_VALUE;
  int card = card_of_pci_text(text);
  for (const auto& device : process().devices)
    if (device->card == card) return *result = device->ordinal, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  SIM_CALL(kDriver);
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(ordinal) || !device_of(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = ordinal != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  SIM_CALL(kDriver);
  if (!value || attribute < 1 || attribute > 5) return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(from) || !device_of(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == 1 || attribute == 5 ? 0 : 1;
  return CUDA_SUCCESS;
}

}  // extern "C"
