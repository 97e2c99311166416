// Device memory of all the kinds a program can ask for, and patterns in it that show whether anybody else wrote there.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session.h"

namespace berth::load {

enum class Kind { linear, async, vmm, managed, pitch, array };

// The driver's answer when it did not give memory.
struct Refusal {
  const char* call;
  CUresult code;
  uint64_t bytes;  // asked for
};

struct Block {
  uint64_t bytes = 0;
  CUdeviceptr address = 0;  // all kinds but array
  CUarray array = nullptr;
  CUmemGenericAllocationHandle handle = 0;  // vmm
};

// The value of word `i` of a pattern; what berth_fill writes.
constexpr uint32_t pattern_word(uint32_t seed, uint32_t i) {
  uint32_t x = (i * 2654435761u) ^ seed;
  x ^= x >> 16;
  x *= 0x45d9f3bu;
  return x ^ (x >> 16);
}

// Allocations of one kind, freed together at the end.
class Memory {
 public:
  Memory(Session& session, Kind kind);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // One more allocation of at least `bytes`; a refusal leaves everything as it was.
  std::optional<Refusal> add(uint64_t bytes);

  // A pattern over the first and the last `edge` bytes of every allocation (0: over everything); `verify` returns the
  // number of words that are not what `write` with the same arguments put there. A sample of the words is compared on
  // the host as well, so that a kernel that does nothing cannot pass.
  void write(uint32_t seed, uint64_t edge);
  uint64_t verify(uint32_t seed, uint64_t edge);

  const std::vector<Block>& blocks() const { return blocks_; }
  uint64_t bytes() const;

 private:
  std::optional<Refusal> allocate(uint64_t bytes, Block* block);
  std::optional<Refusal> allocate_vmm(uint64_t bytes, Block* block);
  std::optional<Refusal> allocate_array(uint64_t bytes, Block* block);
  void release(const Block& block);
  uint64_t patterned_bytes(size_t index) const;
  uint64_t differing_on_host(CUdeviceptr address, uint64_t words, uint32_t seed);
  void copy_array(const Block& block, uint64_t first_row, uint64_t rows, void* host, bool to_device);
  void write_array(const Block& block, uint32_t seed);
  uint64_t verify_array(const Block& block, uint32_t seed);

  Session& session_;
  Kind kind_;
  std::vector<Block> blocks_;
};

}  // namespace berth::load
