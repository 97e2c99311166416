#include "sim/graph_memory.h"

#include <algorithm>

#include "sim/call.h"
#include "sim/memory.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

constexpr uint32_t kStepPages = 16;

// Takes `count` pages out of the stock.
Runs split(Runs& stock, uint32_t count) {
  Runs taken;
  while (count) {
    Run& last = stock.back();
    uint32_t piece = std::min(count, last.count);
    last.count -= piece;
    taken.push_back({last.first + last.count, piece});
    count -= piece;
    if (!last.count) stock.pop_back();
  }
  return taken;
}

}  // namespace

GraphAddress::GraphAddress(uint64_t size) : start(take_addresses(size)), bytes(size) {}

GraphAddress::~GraphAddress() {
  if (start) give_addresses(start, bytes);
}

bool GraphMemory::grow(uint32_t pages) {
  uint32_t total = (pages + kStepPages - 1) / kStepPages * kStepPages;
  Runs more;
  if (!take_pages(card, total, PageKind::memory, &more)) return false;
  stock_.insert(stock_.end(), more.begin(), more.end());
  stock_pages_ += total;
  reserved += total * kPageBytes;
  reserved_high = std::max(reserved_high, reserved);
  return true;
}

bool GraphMemory::prepare(uint64_t bytes) {
  uint32_t pages = pages_for(bytes);
  return pages <= stock_pages_ || grow(pages - stock_pages_);
}

CUresult GraphMemory::begin(const std::vector<std::shared_ptr<GraphAddress>>& addresses, Context& context,
                            Device& device, bool free_first) {
  uint32_t pages = 0;
  for (const auto& address : addresses) {
    auto at = live_.find(address->start);
    if (at != live_.end() && !at->second.launches) {  // left by an earlier launch and not freed since
      if (!free_first) return CUDA_ERROR_INVALID_VALUE;
      process().ranges.erase(address->start);
      release(address->start);
      at = live_.end();
    }
    if (at == live_.end()) pages += pages_for(address->bytes);
  }
  if (pages > stock_pages_ && !grow(pages - stock_pages_)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (const auto& address : addresses) {
    Live& live = live_[address->start];
    ++live.launches;
    if (live.address) continue;
    live.address = address;
    live.runs = split(stock_, pages_for(address->bytes));
    stock_pages_ -= pages_for(address->bytes);
    Physical view;
    view.card = card;
    view.runs = live.runs;
    map_physical(view, 0, pages_for(address->bytes) * kPageBytes, address->start);
    view.runs.clear();  // the pages stay ours
    used += address->bytes;
    used_high = std::max(used_high, used);
    Range range;
    range.start = address->start;
    range.bytes = address->bytes;
    range.kind = RangeKind::graph;
    range.context = &context;
    range.device = &device;
    add_range(std::move(range));
  }
  return CUDA_SUCCESS;
}

void GraphMemory::end(const std::vector<std::shared_ptr<GraphAddress>>& addresses) {
  for (const auto& address : addresses) {
    auto at = live_.find(address->start);
    if (at == live_.end() || --at->second.launches || !at->second.freed) continue;
    process().ranges.erase(address->start);
    release(address->start);
  }
}

void GraphMemory::allocated(uint64_t address) {
  if (auto at = live_.find(address); at != live_.end()) at->second.freed = false;
}

void GraphMemory::free(uint64_t address) {
  auto at = live_.find(address);
  if (at == live_.end()) return;
  at->second.freed = true;
  if (at->second.launches) return;
  process().ranges.erase(address);
  release(address);
}

void GraphMemory::forget(uint64_t address) { release(address); }

void GraphMemory::release(uint64_t address) {
  auto at = live_.find(address);
  if (at == live_.end()) return;
  Live& live = at->second;
  uint32_t pages = pages_for(live.address->bytes);
  unmap(address, pages * kPageBytes);
  stock_.insert(stock_.end(), live.runs.begin(), live.runs.end());
  stock_pages_ += pages;
  used -= live.address->bytes;
  live_.erase(at);
}

void GraphMemory::trim() {
  give_pages(card, stock_);
  reserved -= stock_pages_ * kPageBytes;
  stock_.clear();
  stock_pages_ = 0;
}

}  // namespace berth::sim

extern "C" {

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  SIM_CALL(kDriver);
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  device->graph_memory->trim();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  SIM_CALL(kDriver);
  const Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || attribute < 0 || attribute > 3) return CUDA_ERROR_INVALID_VALUE;
  const GraphMemory& memory = *device->graph_memory;
  const uint64_t values[] = {memory.used, memory.used_high, memory.reserved, memory.reserved_high};
  *static_cast<uint64_t*>(value) = values[attribute];
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  SIM_CALL(kDriver);
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || *static_cast<uint64_t*>(value) || (attribute != 1 && attribute != 3)) return CUDA_ERROR_INVALID_VALUE;
  GraphMemory& memory = *device->graph_memory;
  if (attribute == 1)
    memory.used_high = memory.used;
  else
    memory.reserved_high = memory.reserved;
  return CUDA_SUCCESS;
}

}  // extern "C"
