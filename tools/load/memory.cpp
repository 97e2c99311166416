#include "memory.h"

#include <algorithm>
#include <numeric>

namespace berth::load {
namespace {

constexpr unsigned kAttachGlobal = 1;
constexpr int kPinnedAllocation = 1, kGranularityMinimum = 0, kAccessReadWrite = 3;
constexpr int kFormatUnsigned32 = 3, kMemoryHost = 1, kMemoryArray = 3;
constexpr uint64_t kRowBytes = 64 << 10;  // of arrays and pitched memory
constexpr uint64_t kMaxRows = 65536;
constexpr uint64_t kSampleWords = 1024;
constexpr uint64_t kSmallest = 4096;
constexpr uint64_t kScratch =
    256;  // at the end of the first block: what berth_check adds to, without an allocation more

uint64_t rounded_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Calls f(offset, words, seed) for each part of `bytes` that carries a pattern.
template <class F>
void for_each_part(uint64_t bytes, uint32_t seed, uint64_t edge, F f) {
  uint64_t words = bytes / 4, edge_words = edge / 4;
  if (edge_words == 0 || words <= 2 * edge_words) return f(uint64_t{0}, words, seed);
  f(uint64_t{0}, edge_words, seed);
  f(4 * (words - edge_words), edge_words, ~seed);
}

}  // namespace

Memory::Memory(Session& session, Kind kind) : session_(session), kind_(kind) {}

Memory::~Memory() {
  for (const Block& block : blocks_) release(block);
}

uint64_t Memory::patterned_bytes(size_t index) const {
  return (blocks_[index].bytes - (index == 0 ? kScratch : 0)) / 4 * 4;
}

uint64_t Memory::bytes() const {
  return std::accumulate(blocks_.begin(), blocks_.end(), uint64_t{0},
                         [](uint64_t sum, const Block& block) { return sum + block.bytes; });
}

std::optional<Refusal> Memory::add(uint64_t bytes) {
  Block block;
  if (auto refusal = allocate(std::max(bytes, kSmallest), &block)) return refusal;
  blocks_.push_back(block);
  return std::nullopt;
}

std::optional<Refusal> Memory::allocate(uint64_t bytes, Block* block) {
  const Driver& driver = session_.driver();
  block->bytes = bytes;
  CUresult code = CUDA_SUCCESS;
  const char* call = "";
  switch (kind_) {
    case Kind::linear:
      code = driver.cuMemAlloc_v2(&block->address, bytes), call = "cuMemAlloc";
      break;
    case Kind::async:
      code = driver.cuMemAllocAsync(&block->address, bytes, session_.stream()), call = "cuMemAllocAsync";
      break;
    case Kind::managed:
      code = driver.cuMemAllocManaged(&block->address, bytes, kAttachGlobal), call = "cuMemAllocManaged";
      break;
    case Kind::pitch: {
      // Rows a little narrower than the pitch, so that what is got is not what a product of the arguments says.
      size_t pitch = 0, width = bytes < kRowBytes ? bytes : kRowBytes - 36,
             rows = rounded_up(bytes, kRowBytes) / kRowBytes;
      code = driver.cuMemAllocPitch_v2(&block->address, &pitch, width, rows, 4), call = "cuMemAllocPitch";
      block->bytes = pitch * rows;
      break;
    }
    case Kind::vmm:
      return allocate_vmm(bytes, block);
    case Kind::array:
      return allocate_array(bytes, block);
  }
  if (code != CUDA_SUCCESS) return Refusal{call, code, bytes};
  return std::nullopt;
}

std::optional<Refusal> Memory::allocate_vmm(uint64_t bytes, Block* block) {
  const Driver& driver = session_.driver();
  CUmemAllocationProp properties{};
  properties.type = kPinnedAllocation;
  properties.location = {abi::kMemLocationDevice, session_.device()};
  size_t granularity = 0;
  must(driver, driver.cuMemGetAllocationGranularity(&granularity, &properties, kGranularityMinimum),
       "cuMemGetAllocationGranularity");
  block->bytes = rounded_up(bytes, granularity);
  if (CUresult code = driver.cuMemCreate(&block->handle, block->bytes, &properties, 0))
    return Refusal{"cuMemCreate", code, block->bytes};
  must(driver, driver.cuMemAddressReserve(&block->address, block->bytes, 0, 0, 0), "cuMemAddressReserve");
  must(driver, driver.cuMemMap(block->address, block->bytes, 0, block->handle, 0), "cuMemMap");
  CUmemAccessDesc access{properties.location, kAccessReadWrite};
  must(driver, driver.cuMemSetAccess(block->address, block->bytes, &access, 1), "cuMemSetAccess");
  return std::nullopt;
}

std::optional<Refusal> Memory::allocate_array(uint64_t bytes, Block* block) {
  uint64_t rows = rounded_up(bytes, kRowBytes) / kRowBytes;
  if (rows > kMaxRows) throw Error{"usage", "one array has at most 4G: give a smaller --step"};
  block->bytes = rows * kRowBytes;
  CUDA_ARRAY_DESCRIPTOR descriptor{kRowBytes / 16, rows, kFormatUnsigned32, 4};
  if (CUresult code = session_.driver().cuArrayCreate_v2(&block->array, &descriptor))
    return Refusal{"cuArrayCreate", code, block->bytes};
  return std::nullopt;
}

// Nothing can be done about a failure here: the memory's contents are no longer of interest.
void Memory::release(const Block& block) {
  const Driver& driver = session_.driver();
  switch (kind_) {
    case Kind::linear:
    case Kind::managed:
    case Kind::pitch:
      driver.cuMemFree_v2(block.address);
      break;
    case Kind::async:
      driver.cuMemFreeAsync(block.address, session_.stream());
      break;
    case Kind::array:
      driver.cuArrayDestroy(block.array);
      break;
    case Kind::vmm:
      driver.cuMemUnmap(block.address, block.bytes);
      driver.cuMemRelease(block.handle);
      driver.cuMemAddressFree(block.address, block.bytes);
      break;
  }
}

void Memory::write(uint32_t seed, uint64_t edge) {
  for (size_t i = 0; i < blocks_.size(); ++i, ++seed) {
    if (kind_ == Kind::array) {
      write_array(blocks_[i], seed);
      continue;
    }
    for_each_part(patterned_bytes(i), seed, edge, [&](uint64_t offset, uint64_t words, uint32_t part_seed) {
      session_.fill(blocks_[i].address + offset, words, part_seed);
    });
  }
  session_.synchronize();
}

uint64_t Memory::verify(uint32_t seed, uint64_t edge) {
  if (blocks_.empty()) return 0;
  const Driver& driver = session_.driver();
  CUdeviceptr errors = blocks_[0].address + patterned_bytes(0);
  uint32_t on_device = 0;
  uint64_t on_host = 0;
  if (kind_ != Kind::array) must(driver, driver.cuMemsetD32Async(errors, 0, 1, session_.stream()), "cuMemsetD32Async");
  for (size_t i = 0; i < blocks_.size(); ++i, ++seed) {
    if (kind_ == Kind::array) {
      on_host += verify_array(blocks_[i], seed);
      continue;
    }
    for_each_part(patterned_bytes(i), seed, edge, [&](uint64_t offset, uint64_t words, uint32_t part_seed) {
      session_.check(blocks_[i].address + offset, words, part_seed, errors);
      on_host += differing_on_host(blocks_[i].address + offset, words, part_seed);
    });
  }
  session_.synchronize();
  if (kind_ != Kind::array) must(driver, driver.cuMemcpyDtoH_v2(&on_device, errors, sizeof on_device), "cuMemcpyDtoH");
  return std::max<uint64_t>(on_host, on_device);
}

uint64_t Memory::differing_on_host(CUdeviceptr address, uint64_t words, uint32_t seed) {
  std::vector<uint32_t> sample(std::min(words, kSampleWords));
  uint64_t first = words - sample.size();
  must(session_.driver(), session_.driver().cuMemcpyDtoH_v2(sample.data(), address + 4 * first, 4 * sample.size()),
       "cuMemcpyDtoH");
  uint64_t differing = 0;
  for (uint64_t i = 0; i < sample.size(); ++i)
    differing += sample[i] != pattern_word(seed, static_cast<uint32_t>(first + i));
  return differing;
}

void Memory::copy_array(const Block& block, uint64_t first_row, uint64_t rows, void* host, bool to_device) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = to_device ? kMemoryHost : kMemoryArray;
  copy.dstMemoryType = to_device ? kMemoryArray : kMemoryHost;
  if (to_device)
    copy.srcHost = host, copy.srcPitch = kRowBytes, copy.dstArray = block.array, copy.dstY = first_row;
  else
    copy.dstHost = host, copy.dstPitch = kRowBytes, copy.srcArray = block.array, copy.srcY = first_row;
  copy.WidthInBytes = kRowBytes;
  copy.Height = rows;
  must(session_.driver(), session_.driver().cuMemcpy2D_v2(&copy), "cuMemcpy2D");
}

// Kernels cannot address an array, so its pattern goes through the host: one row at either end.
void Memory::write_array(const Block& block, uint32_t seed) {
  std::vector<uint32_t> row(kRowBytes / 4);
  for (uint64_t y : {uint64_t{0}, block.bytes / kRowBytes - 1}) {
    for (uint32_t i = 0; i < row.size(); ++i) row[i] = pattern_word(seed + static_cast<uint32_t>(y), i);
    copy_array(block, y, 1, row.data(), true);
  }
}

uint64_t Memory::verify_array(const Block& block, uint32_t seed) {
  std::vector<uint32_t> row(kRowBytes / 4);
  uint64_t differing = 0;
  for (uint64_t y : {uint64_t{0}, block.bytes / kRowBytes - 1}) {
    copy_array(block, y, 1, row.data(), false);
    for (uint32_t i = 0; i < row.size(); ++i) differing += row[i] != pattern_word(seed + static_cast<uint32_t>(y), i);
  }
  return differing;
}

}  // namespace berth::load
