#include "sim/pool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sim/memory.h"

namespace berth::sim {
namespace {

constexpr uint64_t kGrain = 512;

std::vector<std::unique_ptr<Pool>>& pools() {
  static auto* const list = new std::vector<std::unique_ptr<Pool>>;
  return *list;
}

struct ExportedPointer {
  char magic[8];
  uint64_t offset, bytes;
};
constexpr char kPointerMagic[] = "simpool";

}  // namespace

bool Pool::reserve_heap() {
  if (heap_) return true;
  uint64_t bytes = (state().card[device->card].memory + kPoolStep - 1) / kPoolStep * kPoolStep;
  heap_ = take_addresses(bytes);
  if (!heap_) return false;
  gaps_[0] = bytes;
  steps_.resize(bytes / kPoolStep);
  return true;
}

uint64_t Pool::missing(uint64_t from, uint64_t to) const {
  uint64_t count = 0;
  for (uint64_t step = from / kPoolStep; step * kPoolStep < to; ++step) count += !steps_[step];
  return count;
}

bool Pool::commit(uint64_t from, uint64_t to) {
  if (properties.maxSize &&
      reserved + missing(from, to) * kPoolStep > std::max<uint64_t>(properties.maxSize, kPoolStep))
    return false;
  std::vector<uint64_t> made;
  for (uint64_t step = from / kPoolStep; step * kPoolStep < to; ++step) {
    if (steps_[step]) continue;
    PhysicalRef memory = take_physical(device->card, kPoolStep);
    if (!memory || !map_physical(*memory, 0, kPoolStep, heap_ + step * kPoolStep)) {
      for (uint64_t undone : made) {
        unmap(heap_ + undone * kPoolStep, kPoolStep);
        steps_[undone] = nullptr;
        reserved -= kPoolStep;
      }
      return false;
    }
    steps_[step] = memory;
    made.push_back(step);
    reserved += kPoolStep;
  }
  reserved_high = std::max(reserved_high, reserved);
  return true;
}

void Pool::enter(uint64_t address, uint64_t bytes, Context& context) {
  Range range;
  range.start = address;
  range.bytes = bytes;
  range.kind = RangeKind::pool;
  range.context = &context;
  range.device = device;
  range.pool = this;
  add_range(std::move(range));
}

CUresult Pool::take(uint64_t asked, const Stream* stream, Context& context, uint64_t* address) {
  if (asked > state().card[device->card].memory || !reserve_heap()) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t bytes = (asked + kGrain - 1) / kGrain * kGrain;
  for (auto& [at, block] : blocks_) {
    if (block.freed_in != stream || !stream || block.bytes != bytes) continue;
    block.freed_in = nullptr;
    *address = at;
    used += bytes;
    enter(at, asked, context);
    return CUDA_SUCCESS;
  }
  auto best = gaps_.end();
  uint64_t best_missing = UINT64_MAX;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    uint64_t lacks = missing(gap->first, gap->first + bytes);
    if (lacks < best_missing) best = gap, best_missing = lacks;
  }
  if (best == gaps_.end() || !commit(best->first, best->first + bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t offset = best->first, rest = best->second - bytes;
  gaps_.erase(best);
  if (rest) gaps_[offset + bytes] = rest;
  *address = heap_ + offset;
  blocks_[*address].bytes = bytes;
  used += bytes;
  used_high = std::max(used_high, used);
  enter(*address, asked, context);
  return CUDA_SUCCESS;
}

uint64_t Pool::begin_free(uint64_t address, const Stream* stream) {
  Block& block = blocks_[address];
  block.freed_in = stream;
  block.generation = ++generation_;
  used -= block.bytes;  // recorded: at the call
  process().ranges.erase(address);
  return block.generation;
}

void Pool::finish_free(uint64_t address, uint64_t generation) {
  auto at = blocks_.find(address);
  if (at != blocks_.end() && at->second.freed_in && at->second.generation == generation) release(address);
}

void Pool::forget(uint64_t address) { release(address); }

void Pool::release(uint64_t address) {
  auto at = blocks_.find(address);
  if (at == blocks_.end()) return;
  uint64_t bytes = at->second.bytes, offset = address - heap_;
  if (!at->second.freed_in) used -= bytes;
  blocks_.erase(at);
  if (imported) return;
  auto next = gaps_.upper_bound(offset);
  if (next != gaps_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == offset)
    std::prev(next)->second += bytes;
  else
    gaps_[offset] = bytes;
  if (destroyed && blocks_.empty()) trim(0);
}

void Pool::trim(uint64_t keep) {
  for (uint64_t step = steps_.size(); step-- > 0 && reserved > keep;) {
    if (!steps_[step]) continue;
    uint64_t from = step * kPoolStep;
    auto gap = gaps_.upper_bound(from);
    if (gap == gaps_.begin() || (--gap)->first + gap->second < from + kPoolStep) continue;
    unmap(heap_ + from, kPoolStep);
    steps_[step] = nullptr;
    reserved -= kPoolStep;
  }
}

bool Pool::frees_pending() const {
  return std::any_of(blocks_.begin(), blocks_.end(), [](const auto& each) { return each.second.freed_in != nullptr; });
}

// The table has a ShareName for each step; index 0 of a share is written as 1, so that holes read as none.
CUresult Pool::export_pointer(uint64_t address, CUmemPoolPtrExportData* data) {
  auto at = blocks_.find(address);
  if (at == blocks_.end() || file.empty() || imported) return CUDA_ERROR_INVALID_VALUE;
  uint64_t offset = address - heap_, end = offset + at->second.bytes;
  UniqueFd fd = open_folder_file(file, O_RDWR);
  if (!fd) return CUDA_ERROR_OPERATING_SYSTEM;
  for (uint64_t step = offset / kPoolStep; step * kPoolStep < end; ++step) {
    if (!make_shared_physical(steps_[step])) return CUDA_ERROR_OUT_OF_MEMORY;
    ShareName name = *steps_[step]->share;
    ++name.index;
    if (pwrite(fd.get(), &name, sizeof name, static_cast<off_t>(step * sizeof name)) != sizeof name)
      return CUDA_ERROR_OPERATING_SYSTEM;
  }
  ExportedPointer exported{};
  std::memcpy(exported.magic, kPointerMagic, sizeof exported.magic);
  exported.offset = offset, exported.bytes = at->second.bytes;
  std::memset(data, 0, sizeof *data);
  std::memcpy(data, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUresult Pool::import_pointer(const CUmemPoolPtrExportData& data, Context& context, uint64_t* address) {
  ExportedPointer exported{};
  std::memcpy(&exported, &data, sizeof exported);
  if (!imported || std::memcmp(exported.magic, kPointerMagic, sizeof exported.magic) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (!reserve_heap()) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t end = exported.offset + exported.bytes;
  UniqueFd fd = open_folder_file(file, O_RDONLY);
  if (!fd || end > steps_.size() * kPoolStep || end < exported.offset) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t step = exported.offset / kPoolStep; step * kPoolStep < end; ++step) {
    ShareName name{};
    if (pread(fd.get(), &name, sizeof name, static_cast<off_t>(step * sizeof name)) != sizeof name || name.index-- == 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (steps_[step] && steps_[step]->share->index == name.index && steps_[step]->share->generation == name.generation)
      continue;
    PhysicalRef memory = open_shared_physical(name);
    if (!memory || !map_physical(*memory, 0, kPoolStep, heap_ + step * kPoolStep)) return CUDA_ERROR_INVALID_VALUE;
    steps_[step] = memory;
  }
  *address = heap_ + exported.offset;
  blocks_[*address].bytes = exported.bytes;
  used += exported.bytes;
  enter(*address, exported.bytes, context);
  return CUDA_SUCCESS;
}

Pool* make_pool(Device& device, const CUmemPoolProps* properties) {
  auto pool = std::make_unique<Pool>();
  pool->device = &device;
  if (properties) pool->properties = *properties;
  pools().push_back(std::move(pool));
  return pools().back().get();
}

Pool* pool_of(CUmemoryPool handle) {
  for (const auto& pool : pools())
    if (reinterpret_cast<CUmemoryPool>(pool.get()) == handle) return pool->destroyed ? nullptr : pool.get();
  return nullptr;
}

void trim_after_synchronisation(Device& device) {
  for (const auto& pool : pools())
    if (pool->device == &device && !pool->imported && pool->reserved > pool->threshold) pool->trim(pool->threshold);
}

}  // namespace berth::sim
