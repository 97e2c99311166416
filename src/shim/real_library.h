// The library that we stand in for: found, opened at the first call, its addresses put into the slot table.
// Any thread; opening happens once, a thread that comes meanwhile waits. No lock is held over the library's own start-up
// code in the thread that runs it (dlopen runs the constructors of the real library, which may call us back).
#pragma once
#include <cstdint>

namespace berth::shim {

struct LibraryNames {
  const char* file;           // "libcuda.so.1"
  const char* const* names;   // sorted
  int count;
  void** slots;               // the table that the assembly entries jump through
  int (*not_found)();         // goes into the slots of names that the library lacks, and everywhere when there is none
  bool (*is_ours)(const char* name);  // does an exported name that the list lacks matter
};

struct LibraryAudit {
  uint32_t unknown = 0;    // exported functions that the list lacks
  uint32_t missing = 0;    // names of the list that the library lacks
  uint32_t duplicate = 0;  // names that share an address with another: they can't be told apart by address
};

class RealLibrary {
 public:
  constexpr explicit RealLibrary(LibraryNames names) : names_(names) {}
  // Opens on the first call. False when there is no real library; the slots then answer `not_found`.
  bool open();
  const LibraryAudit& audit() const { return audit_; }
  // The row whose real address is `address`, or -1. Valid after open().
  int row_of(const void* address) const;
  // As row_of, for a function of another library that exports it under a name of our list: a thin library (WSL's) answers
  // lookups with functions of the driver behind it.
  int row_behind(const void* address) const;

 private:
  bool load();
  void index_addresses();

  LibraryNames names_;
  uint32_t state_ = 0;  // 0 not opened, 1 being opened, 2 open, 3 none
  long opener_ = 0;     // the thread in state 1
  LibraryAudit audit_;
  struct ByAddress { const void* address; int row; };
  ByAddress* sorted_ = nullptr;
  int sorted_count_ = 0;
};

// Finds the file to open: BERTH_DRIVER, the isolated place, LD_LIBRARY_PATH, the loader's cache, the usual folders; never
// ourselves. False if there is none. `path` holds PATH_MAX bytes.
bool locate_real_library(const char* file, char* path);

// True if the shared object at `path` resolves its own names within itself (DT_SYMBOLIC): otherwise it would reach us.
bool is_symbolic(const char* path);

}  // namespace berth::shim
