#include "sim/ipc.h"

#include <cstring>

#include "sim/call.h"
#include "sim/event.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace berth::sim {

PhysicalRef import_share(int fd) {
  ShareName name{};
  return read_share_file(fd, &name) ? open_shared_physical(name) : nullptr;
}

int ordinal_of_card(int card) {
  for (const auto& device : process().devices)
    if (device->card == card) return device->ordinal;
  return -1;
}

}  // namespace berth::sim

namespace {

constexpr uint64_t kMemoryMagic = 0x6d656d'63706973, kEventMagic = 0x746e6576'63706973;

struct MemoryHandle {
  uint64_t magic;
  ShareName name;
  int32_t exporter, pad;
  uint64_t offset, bytes;
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

struct EventHandle {
  uint64_t magic;
  int32_t shared, exporter;
};

CUresult open_memory(Call& call, CUdeviceptr* pointer, const CUipcMemHandle& handle, unsigned flags) {
  MemoryHandle named{};
  std::memcpy(&named, &handle, sizeof named);
  if (!pointer || flags != 1 || named.magic != kMemoryMagic) return CUDA_ERROR_INVALID_VALUE;
  if (named.exporter == own_slot()) return CUDA_ERROR_INVALID_CONTEXT;  // not in the process that made it
  PhysicalRef physical = open_shared_physical(named.name);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [start, range] : process().ranges)
    if (range.kind == RangeKind::imported && range.physical == physical && range.offset == named.offset &&
        range.flags) {
      ++range.flags;
      *pointer = start;
      return CUDA_SUCCESS;
    }
  uint64_t view = take_addresses(physical->bytes);
  if (!view || !map_physical(*physical, 0, physical->bytes, view)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = view + named.offset;
  range.bytes = named.bytes;
  range.kind = RangeKind::imported;
  range.context = call.context;
  range.device = device_of(ordinal_of_card(physical->card));
  range.physical = std::move(physical);
  range.offset = named.offset;
  range.view = view;
  range.flags = 1;
  *pointer = range.start;
  add_range(std::move(range));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  SIM_CALL(kContext);
  const Range* range = find_range(pointer);
  if (!handle || !range || (range->kind != RangeKind::device && range->kind != RangeKind::small))
    return CUDA_ERROR_INVALID_VALUE;
  if (!make_shared_physical(range->physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryHandle named{kMemoryMagic, *range->physical->share, own_slot(), 0, range->offset, range->bytes};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &named, sizeof named);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIM_CALL(kContext);
  return open_memory(call, pointer, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIM_CALL(kContext);
  return open_memory(call, pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SIM_CALL(kContext);
  auto at = process().ranges.find(pointer);
  if (at == process().ranges.end() || at->second.kind != RangeKind::imported || !at->second.flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (at->second.flags > 1) return --at->second.flags, CUDA_SUCCESS;
  CUresult error = wait_for_context(call.lock, *at->second.context);
  drop_range(pointer);
  return error;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  SIM_CALL(kContext);
  auto found = events().find(event);
  if (!handle || !found || found->shared < 0) return CUDA_ERROR_INVALID_VALUE;
  EventHandle named{kEventMagic, found->shared, own_slot()};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &named, sizeof named);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  SIM_CALL(kContext);
  EventHandle named{};
  std::memcpy(&named, &handle, sizeof named);
  if (!event || named.magic != kEventMagic || named.shared < 0 || named.shared >= kMaxEvents)
    return CUDA_ERROR_INVALID_VALUE;
  if (!state().events[named.shared].owner) return CUDA_ERROR_INVALID_VALUE;
  auto opened = std::make_shared<Event>();
  opened->context = call.context;
  opened->flags = kEventNoTiming | kEventInterprocess;
  opened->shared = named.shared;
  *event = events().add<CUevent>(opened);
  return CUDA_SUCCESS;
}

}  // extern "C"
