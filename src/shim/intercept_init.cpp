// cuInit attaches; cuGetProcAddress hands out our entries instead of the driver's.
#include <string.h>

#include "abi/generated/driver_intercepts.h"
#include "shim/driver.h"
#include "shim/virtual_devices.h"

namespace berth::shim::intercept {
namespace {

// Names whose absence from our list would mean memory or work that we don't see.
bool matters(const char* symbol) {
  for (const char* prefix : {"cuMem", "cuLaunch", "cuGraph", "cuStream", "cuArray", "cuMipmapped", "cuCtx"})
    if (::strncmp(symbol, prefix, ::strlen(prefix)) == 0) return true;
  return false;
}

std::atomic<uint32_t> unplaced{0};
char first_unplaced[64];  // written by whoever makes `unplaced` 1

// `*pointer` is the driver's answer. Swapped by address, never by name: only the driver knows which variant a version means.
void swap(const char* symbol, void** pointer) {
  if (!pointer || !*pointer) return;
  int row = real_driver().row_of(*pointer);
  if (row < 0) row = real_driver().row_behind(*pointer);
  if (row >= 0) {
    *pointer = berth_driver_entries[row];  // of every row, so that it equals what dlsym finds in us
    return;
  }
  if (!symbol || !matters(symbol)) return;
  uint32_t count = unplaced.fetch_add(1, std::memory_order_relaxed) + 1;
  if (count == 1) ::strncpy(first_unplaced, symbol, sizeof first_unplaced - 1);
  log_line("the driver's %s is not in our list", symbol);
  if (Client* client = current_client()) client->notice(wire::NoticeCode::partly_covered, 0, count, symbol);
}

}  // namespace

CUresult cuInit(ContextCall&, decltype(&::cuInit) real, unsigned flags) {
  CardsInEnvironment cards;
  CUresult result = real(flags);
  if (result != CUDA_SUCCESS || current_client()) return result;
  Introduction introduction = introduce_driver();
  introduction.unknown_symbols += unplaced.load(std::memory_order_relaxed);
  bool attached = attach(introduction, &install_virtual_devices);
  // The runtime asks for everything before it calls cuInit.
  uint32_t count = unplaced.load(std::memory_order_relaxed);
  if (Client* client = current_client(); client && count) client->notice(wire::NoticeCode::partly_covered, 0, count, first_unplaced);
  log_line(attached ? "attached, driver %d" : "no daemon or no job, driver %d", introduction.driver_version);
  return result;
}

CUresult cuGetProcAddress(ContextCall&, decltype(&::cuGetProcAddress) real, const char* symbol, void** pointer, int version,
                          uint64_t flags) {
  CUresult result = real(symbol, pointer, version, flags);
  if (result == CUDA_SUCCESS) swap(symbol, pointer);
  return result;
}

CUresult cuGetProcAddress_v2(ContextCall&, decltype(&::cuGetProcAddress_v2) real, const char* symbol, void** pointer,
                             int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  CUresult result = real(symbol, pointer, version, flags, status);
  if (result == CUDA_SUCCESS) swap(symbol, pointer);
  return result;
}

}  // namespace berth::shim::intercept
