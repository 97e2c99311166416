#include "shim/real_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>

#include "shim/guest.h"

namespace berth::shim {
namespace {

struct SymbolTable {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  size_t count = 0;
};

size_t count_by_gnu_hash(const uint32_t* table) {
  uint32_t buckets = table[0], first = table[1], bloom = table[2];
  const uint32_t* bucket = table + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while (!(chain[last - first] & 1)) ++last;
  return last + 1;
}

SymbolTable symbol_table(const link_map* map) {
  SymbolTable table;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const void* there = reinterpret_cast<const void*>(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB: table.symbols = static_cast<const ElfW(Sym)*>(there); break;
      case DT_STRTAB: table.strings = static_cast<const char*>(there); break;
      case DT_HASH: table.count = static_cast<const uint32_t*>(there)[1]; break;
      case DT_GNU_HASH:
        if (!table.count) table.count = count_by_gnu_hash(static_cast<const uint32_t*>(there));
        break;
      default: break;
    }
  }
  return table;
}

int find_name(const LibraryNames& names, const char* name) {
  int low = 0, high = names.count - 1;
  while (low <= high) {
    int middle = (low + high) / 2, order = ::strcmp(names.names[middle], name);
    if (order == 0) return middle;
    if (order < 0) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

}  // namespace

bool RealLibrary::open() {
  for (;;) {
    uint32_t state = __atomic_load_n(&state_, __ATOMIC_ACQUIRE);
    if (state >= 2) return state == 2;
    if (state == 1) {
      if (__atomic_load_n(&opener_, __ATOMIC_RELAXED) == sys(SYS_gettid)) return false;  // its own start-up code calls us
      sys(SYS_futex, reinterpret_cast<long>(&state_), FUTEX_WAIT_PRIVATE, 1, 0);
      continue;
    }
    if (!__atomic_compare_exchange_n(&state_, &state, 1u, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
    __atomic_store_n(&opener_, sys(SYS_gettid), __ATOMIC_RELAXED);
    bool found = load();
    __atomic_store_n(&state_, found ? 2u : 3u, __ATOMIC_RELEASE);
    sys(SYS_futex, reinterpret_cast<long>(&state_), FUTEX_WAKE_PRIVATE, INT_MAX);
    return found;
  }
}

bool RealLibrary::load() {
  char path[PATH_MAX];
  void* handle = nullptr;
  if (locate_real_library(names_.file, path)) {
    handle = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL | (is_symbolic(path) ? 0 : RTLD_DEEPBIND));
    log_line(handle ? "%s is %s" : "%s: cannot load %s", names_.file, path);
  } else {
    log_line("no %s but ours", names_.file);
  }
  link_map* map = nullptr;
  SymbolTable table;
  if (handle && ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) table = symbol_table(map);
  size_t found = 0;
  sorted_ = static_cast<ByAddress*>(map_pages(sizeof(ByAddress) * static_cast<size_t>(names_.count)));
  uint8_t* known = static_cast<uint8_t*>(map_pages(static_cast<size_t>(names_.count)));
  for (size_t i = 1; sorted_ && known && i < table.count; ++i) {
    const ElfW(Sym)& symbol = table.symbols[i];
    unsigned char type = symbol.st_info & 15, binding = symbol.st_info >> 4;
    if (symbol.st_shndx == SHN_UNDEF || type != STT_FUNC || (binding != STB_GLOBAL && binding != STB_WEAK)) continue;
    const char* name = table.strings + symbol.st_name;
    int row = find_name(names_, name);
    if (row < 0) {
      if (names_.is_ours(name)) ++audit_.unknown;
      continue;
    }
    void* address = reinterpret_cast<void*>(map->l_addr + symbol.st_value);
    __atomic_store_n(&names_.slots[row], address, __ATOMIC_RELEASE);
    known[row] = 1;
    sorted_[found++] = {address, row};
  }
  for (int row = 0; row < names_.count; ++row)
    if (!known || !known[row]) __atomic_store_n(&names_.slots[row], reinterpret_cast<void*>(names_.not_found), __ATOMIC_RELEASE);
  audit_.missing = static_cast<uint32_t>(names_.count) - static_cast<uint32_t>(found);
  sorted_count_ = static_cast<int>(found);
  if (known) unmap_pages(known, static_cast<size_t>(names_.count));
  if (found) index_addresses();
  return found != 0;
}

// Shell sort: the C library's qsort may allocate.
void RealLibrary::index_addresses() {
  for (int gap = sorted_count_ / 2; gap > 0; gap /= 2)
    for (int i = gap; i < sorted_count_; ++i)
      for (int j = i; j >= gap && sorted_[j].address < sorted_[j - gap].address; j -= gap) {
        ByAddress moved = sorted_[j];
        sorted_[j] = sorted_[j - gap];
        sorted_[j - gap] = moved;
      }
  for (int i = 1; i < sorted_count_; ++i) audit_.duplicate += sorted_[i].address == sorted_[i - 1].address;
}

int RealLibrary::row_of(const void* address) const {
  int low = 0, high = sorted_count_ - 1;
  while (low <= high) {
    int middle = (low + high) / 2;
    if (sorted_[middle].address == address) return sorted_[middle].row;
    if (sorted_[middle].address < address) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

int RealLibrary::row_behind(const void* address) const {
  Dl_info info;
  if (!::dladdr(address, &info) || !info.dli_sname || info.dli_saddr != address) return -1;
  return find_name(names_, info.dli_sname);
}

}  // namespace berth::shim
