// Memory pools. A pool is a stretch of addresses as long as the card; the card's memory comes to it in steps of 32 MiB
// and leaves it at synchronisations, down to the release threshold (recorded: 1 MiB takes 32 MiB, 100 MiB more take 96
// more).
#pragma once
#include <list>

#include "sim/process.h"

namespace berth::sim {

inline constexpr uint64_t kPoolStep = 32ull << 20;

struct Pool {
  Device* device = nullptr;
  CUmemPoolProps properties{};
  bool destroyed = false;
  int reuse[3] = {1, 1, 1};
  uint64_t threshold = 0, reserved = 0, reserved_high = 0, used = 0, used_high = 0;

  // An address for `bytes` that work in `stream` may use from now on; also one that was freed earlier in that stream.
  CUresult take(uint64_t bytes, const Stream* stream, Context& context, uint64_t* address);
  // cuMemFreeAsync: free for that stream at once (the generation is returned), for the others when the stream gets
  // there.
  uint64_t begin_free(uint64_t address, const Stream* stream);
  void finish_free(uint64_t address, uint64_t generation);
  // Without regard to streams; the range has gone already.
  void forget(uint64_t address);
  // Gives back steps nobody uses while more than `keep` bytes are reserved.
  void trim(uint64_t keep);
  bool frees_pending() const;
  bool empty() const { return blocks_.empty(); }

  // Sharing: the steps are shared one by one, through a table in the pool's file.
  std::string file;  // name in the folder; empty: not exported or imported
  bool imported = false;
  CUresult export_pointer(uint64_t address, CUmemPoolPtrExportData* data);
  CUresult import_pointer(const CUmemPoolPtrExportData& data, Context& context, uint64_t* address);

 private:
  struct Block {
    uint64_t bytes = 0;
    const Stream* freed_in = nullptr;  // null: in use
    uint64_t generation = 0;
  };
  bool commit(uint64_t from, uint64_t to);
  uint64_t missing(uint64_t from, uint64_t to) const;
  bool reserve_heap();
  void enter(uint64_t address, uint64_t bytes, Context& context);
  void release(uint64_t address);

  uint64_t heap_ = 0;
  std::map<uint64_t, uint64_t> gaps_;  // offset, bytes
  std::map<uint64_t, Block> blocks_;   // by address
  std::vector<PhysicalRef> steps_;
  uint64_t generation_ = 0;
};

// Pools live for ever in the process once made, as handles to them may.
Pool* make_pool(Device& device, const CUmemPoolProps* properties);  // null properties: the default pool
Pool* pool_of(CUmemoryPool handle);                                 // null: none, or destroyed
void trim_after_synchronisation(Device& device);

}  // namespace berth::sim
