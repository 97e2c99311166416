// cuGetProcAddress: which export a name stands for depends on the version and on the stream flavour asked for.
#include <dlfcn.h>

#include <cstring>

#include "sim/call.h"
#include "sim/variant.h"

using namespace berth::sim;

namespace {

// What the real driver hands out, recorded: from this version on this export.
struct Row {
  const char* name;
  int flavour;  // 1 legacy, 2 per-thread
  int version;
  const char* symbol;
};
constexpr Row kRows[] = {
#include "abi/generated/driver_versions.inc"
};

constexpr uint64_t kPerThread = 2, kFlags = 3;

enum Status { kFound = 0, kNoSuchName = 1, kVersionTooOld = 2 };

const char* symbol_for(const char* name, int version, uint64_t flags, Status* status) {
  const Row* best = nullptr;
  bool known = false;
  for (const Row& row : kRows) {
    if (row.flavour != (flags & kPerThread ? 2 : 1) || std::strcmp(row.name, name) != 0) continue;
    known = true;
    if (row.version <= version && (!best || row.version > best->version)) best = &row;
  }
  *status = best ? kFound : known ? kVersionTooOld : kNoSuchName;
  for (const NewerName& newer : variant().newer)
    if (newer.version <= version && std::strcmp(newer.name, name) == 0) return *status = kFound, newer.symbol;
  return best ? best->symbol : nullptr;
}

void* own_export(const char* symbol) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&own_export), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return self ? dlsym(self, symbol) : nullptr;
}

// Recorded: bad versions and flags leave the outputs alone; a null pointer is not caught.
CUresult look_up(const char* name, void** pointer, int version, uint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (!name || version > variant().cuda_version || version < 0 || flags & ~kFlags) return CUDA_ERROR_INVALID_VALUE;
  Status found = kNoSuchName;
  const char* symbol = symbol_hidden(name) ? nullptr : symbol_for(name, version, flags, &found);
  *pointer = symbol ? own_export(symbol) : nullptr;
  if (status) *status = found;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** pointer, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  SIM_CALL(kNothing);
  return look_up(name, pointer, version, flags, status);
}

CUresult cuGetProcAddress(const char* name, void** pointer, int version, uint64_t flags) {
  SIM_CALL(kNothing);
  CUresult result = look_up(name, pointer, version, flags, nullptr);
  return !result && !*pointer ? CUDA_ERROR_NOT_FOUND : result;
}

}  // extern "C"
