#include "sim/physical.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace berth::sim {
namespace {

// Free addresses by their start. Leaf lock: taken under the process's lock or without it.
std::mutex addresses_mutex;
std::map<uint64_t, uint64_t>& free_addresses() {
  static auto* const map = new std::map<uint64_t, uint64_t>;
  return *map;
}

auto& shares_here() {
  static auto* const map = new std::map<std::pair<int32_t, uint32_t>, std::weak_ptr<Physical>>;
  return *map;
}

void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Physical::~Physical() {
  if (host)
    munmap(host, bytes);
  else if (share)
    leave_share(*share);
  else if (!runs.empty())
    give_pages(card, runs);
}

PhysicalRef take_physical(int card, uint64_t bytes, PageKind kind) {
  auto result = std::make_shared<Physical>();
  if (bytes > state().card[card].memory || !take_pages(card, pages_for(bytes), kind, &result->runs)) return nullptr;
  result->card = card, result->kind = kind;
  result->bytes = pages_for(bytes) * kPageBytes;
  return result;
}

PhysicalRef take_host_physical(uint64_t bytes) {
  auto result = std::make_shared<Physical>();
  void* where = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (where == MAP_FAILED) return nullptr;
  result->host = where, result->bytes = bytes;
  return result;
}

bool make_shared_physical(const PhysicalRef& physical) {
  if (physical->share) return true;
  ShareName name{};
  if (physical->card < 0 || share_pages(physical->card, physical->runs, &name) < 0) return false;
  physical->share = name;
  shares_here()[{name.index, name.generation}] = physical;
  return true;
}

PhysicalRef open_shared_physical(const ShareName& name) {
  std::erase_if(shares_here(), [](const auto& each) { return each.second.expired(); });
  if (auto known = shares_here().find({name.index, name.generation}); known != shares_here().end())
    return known->second.lock();
  auto result = std::make_shared<Physical>();
  if (!join_share(name, &result->card, &result->runs)) return nullptr;
  for (const Run& run : result->runs) result->bytes += run.count * kPageBytes;
  result->share = name;
  shares_here()[{name.index, name.generation}] = result;
  return result;
}

void reserve_addresses() {
  for (uint64_t bytes = 8ull << 40; bytes >= 1ull << 36; bytes /= 2) {
    void* where = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (where == MAP_FAILED) continue;
    madvise(where, bytes, MADV_DONTDUMP);
    uint64_t first = (reinterpret_cast<uint64_t>(where) + kPageBytes - 1) / kPageBytes * kPageBytes;
    free_addresses()[first] = reinterpret_cast<uint64_t>(where) + bytes - first;
    return;
  }
}

uint64_t take_addresses(uint64_t bytes, uint64_t alignment, uint64_t wish) {
  std::lock_guard guard(addresses_mutex);
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (alignment < kPageBytes) alignment = kPageBytes;
  auto cut = [bytes](std::map<uint64_t, uint64_t>::iterator gap, uint64_t at) {
    uint64_t start = gap->first, end = gap->first + gap->second;
    free_addresses().erase(gap);
    if (at > start) free_addresses()[start] = at - start;
    if (end > at + bytes) free_addresses()[at + bytes] = end - at - bytes;
    return at;
  };
  if (wish && wish % alignment == 0) {
    auto gap = free_addresses().upper_bound(wish);
    if (gap != free_addresses().begin() && (--gap)->first + gap->second >= wish + bytes && gap->first <= wish)
      return cut(gap, wish);
  }
  for (auto gap = free_addresses().begin(); gap != free_addresses().end(); ++gap) {
    uint64_t at = (gap->first + alignment - 1) / alignment * alignment;
    if (at + bytes <= gap->first + gap->second && at + bytes > at) return cut(gap, at);
  }
  return 0;
}

uint64_t take_low_addresses(uint64_t bytes) {
  void* where = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_32BIT, -1, 0);
  return where == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(where);
}

void give_addresses(uint64_t address, uint64_t bytes) {
  std::lock_guard guard(addresses_mutex);
  if (address <= UINT32_MAX) {
    munmap(as_pointer(address), bytes);
    return;
  }
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto next = free_addresses().upper_bound(address);
  if (next != free_addresses().end() && address + bytes == next->first) {
    bytes += next->second;
    next = free_addresses().erase(next);
  }
  if (next != free_addresses().begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_addresses()[address] = bytes;
}

bool map_physical(const Physical& physical, uint64_t offset, uint64_t bytes, uint64_t address) {
  if (physical.host) {
    // A second view of shared memory: a move of length 0 leaves the first one in place.
    void* view = mremap(static_cast<char*>(physical.host) + offset, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                        as_pointer(address));
    return view != MAP_FAILED;
  }
  UniqueFd fd = open_folder_file("card" + std::to_string(physical.card), O_RDWR);
  if (!fd) return false;
  uint64_t start = 0;  // of the run within the memory
  for (const Run& run : physical.runs) {
    uint64_t length = run.count * kPageBytes;
    uint64_t from = std::max(start, offset), to = std::min(start + length, offset + bytes);
    if (from < to) {
      void* view = mmap(as_pointer(address + from - offset), to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        fd.get(), static_cast<off_t>(run.first * kPageBytes + from - start));
      if (view == MAP_FAILED) return false;
    }
    start += length;
  }
  return true;
}

bool map_private(uint64_t address, uint64_t bytes) {
  return mmap(as_pointer(address), bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void unmap(uint64_t address, uint64_t bytes) {
  mmap(as_pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

}  // namespace berth::sim
