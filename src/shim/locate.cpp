// Where the real library is. The rules stand in docs/guest-rules.md, "Finding the real library".
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/guest.h"
#include "shim/real_library.h"

namespace berth::shim {
namespace {

constexpr const char* kUsualFolders[] = {
    "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib",
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu",
#else
    "/usr/lib/aarch64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu", "/lib/aarch64-linux-gnu",
#endif
    "/usr/lib64", "/usr/lib", "/lib64"};

// stat by the plain system call: the C library's name for it is newer than our floor.
bool stat_of(const char* path, struct stat* info) {
  return sys(SYS_newfstatat, AT_FDCWD, reinterpret_cast<long>(path), reinterpret_cast<long>(info), 0) == 0;
}

class Search {
 public:
  Search(const char* file, char* path) : file_(file), path_(path) {
    Dl_info self;
    const char* name = ::dladdr(reinterpret_cast<void*>(&locate_real_library), &self) ? self.dli_fname : nullptr;
    if (!name || !stat_of(name, &ours_)) ours_ = {};
    const char* slash = name ? ::strrchr(name, '/') : nullptr;
    size_t length = slash ? static_cast<size_t>(slash - name) : 0;
    if (length && length < sizeof folder_) ::memcpy(folder_, name, length);
  }

  const char* our_folder() const { return folder_; }

  bool try_path(const char* path, size_t length) {
    if (length == 0 || length >= PATH_MAX) return false;
    char whole[PATH_MAX];
    ::memcpy(whole, path, length);
    whole[length] = 0;
    struct stat info;
    if (!stat_of(whole, &info) || !S_ISREG(info.st_mode)) return false;
    if (info.st_dev == ours_.st_dev && info.st_ino == ours_.st_ino) return false;
    if (!fits_this_process(whole)) return false;
    ::memcpy(path_, whole, length + 1);
    return true;
  }

  bool try_folder(const char* folder, size_t length) {
    char whole[PATH_MAX];
    size_t file_length = ::strlen(file_);
    if (length == 0 || length + 1 + file_length >= sizeof whole) return false;
    ::memcpy(whole, folder, length);
    whole[length] = '/';
    ::memcpy(whole + length + 1, file_, file_length);
    return try_path(whole, length + 1 + file_length);
  }
  bool try_folder(const char* folder) { return try_folder(folder, ::strlen(folder)); }

  bool try_list(const char* list) {
    while (list && *list) {
      size_t length = ::strcspn(list, ":;");
      if (try_folder(list, length)) return true;
      list += length + (list[length] != 0);
    }
    return false;
  }

  // The loader's cache in its format since glibc 2.2: a header, entries of offsets into the strings behind them.
  bool try_loader_cache() {
    long fd = sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/etc/ld.so.cache"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat info;
    bool found = false;
    if (sys(SYS_newfstatat, fd, reinterpret_cast<long>(""), reinterpret_cast<long>(&info), AT_EMPTY_PATH) == 0) {
      size_t size = static_cast<size_t>(info.st_size);
      long at = sys(SYS_mmap, 0, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at > 0) {
        found = search_cache(reinterpret_cast<const char*>(at), size);
        sys(SYS_munmap, at, info.st_size);
      }
    }
    sys(SYS_close, fd);
    return found;
  }

 private:
  static bool fits_this_process(const char* path) {
    long fd = sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ElfW(Ehdr) header;
    long got = sys(SYS_read, fd, reinterpret_cast<long>(&header), sizeof header);
    sys(SYS_close, fd);
    constexpr int kMachine =
#if defined(__x86_64__)
        EM_X86_64;
#else
        EM_AARCH64;
#endif
    return got == sizeof header && ::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == kMachine;
  }

  bool search_cache(const char* cache, size_t size) {
    static constexpr char kMagic[] = "glibc-ld.so.cache1.1";
    struct Entry { int32_t flags; uint32_t key, value, os_version; uint64_t hwcap; };
    size_t start = 0;
    while (start + 48 <= size && ::memcmp(cache + start, kMagic, sizeof kMagic - 1) != 0) start += 8;  // an old part may precede
    if (start + 48 > size) return false;
    uint32_t count;
    ::memcpy(&count, cache + start + 20, sizeof count);
    const char* entries = cache + start + 48;
    if (count > (size - start - 48) / sizeof(Entry)) return false;
    for (uint32_t i = 0; i < count; ++i) {
      Entry entry;
      ::memcpy(&entry, entries + i * sizeof entry, sizeof entry);
      if (entry.key >= size - start || entry.value >= size - start) continue;
      const char* key = cache + start + entry.key;
      const char* value = cache + start + entry.value;
      if (::strncmp(key, file_, size - start - entry.key) != 0) continue;
      if (try_path(value, ::strnlen(value, size - start - entry.value))) return true;
    }
    return false;
  }

  const char* file_;
  char* path_;
  struct stat ours_ = {};
  char folder_[PATH_MAX] = {};
};

bool try_chosen(Search& search, const char* chosen) {
  if (::strcmp(chosen, "sim") == 0) {
    char folder[PATH_MAX];
    size_t length = ::strlen(search.our_folder());
    static constexpr char kSim[] = "/../sim";
    if (length + sizeof kSim > sizeof folder) return false;
    ::memcpy(folder, search.our_folder(), length);
    ::memcpy(folder + length, kSim, sizeof kSim);
    return search.try_folder(folder);
  }
  const char* slash = ::strrchr(chosen, '/');  // a path of libcuda.so.1; the management library stands beside it
  return slash && search.try_folder(chosen, static_cast<size_t>(slash - chosen));
}

bool try_isolated(Search& search) {
  char folder[64] = "/tmp/berth-";
  char digits[16];
  int count = 0;
  for (unsigned uid = static_cast<unsigned>(sys(SYS_getuid)); count == 0 || uid; uid /= 10)
    digits[count++] = static_cast<char>('0' + uid % 10);
  size_t length = ::strlen(folder);
  while (count) folder[length++] = digits[--count];
  ::memcpy(folder + length, "/real", 6);
  struct stat info;
  if (!stat_of(folder, &info) || !S_ISDIR(info.st_mode) || (info.st_mode & 022)) return false;
  if (info.st_uid != static_cast<uid_t>(sys(SYS_getuid)) && info.st_uid != 0) return false;
  return search.try_folder(folder);
}

}  // namespace

bool locate_real_library(const char* file, char* path) {
  Search search(file, path);
  const char* chosen = ::getenv("BERTH_DRIVER");
  if (chosen && *chosen) return try_chosen(search, chosen);
  if (try_isolated(search) || search.try_list(::getenv("LD_LIBRARY_PATH")) || search.try_loader_cache()) return true;
  for (const char* folder : kUsualFolders)
    if (search.try_folder(folder)) return true;
  return false;
}

bool is_symbolic(const char* path) {
  long fd = sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool symbolic = false;
  ElfW(Ehdr) header;
  if (sys(SYS_pread64, fd, reinterpret_cast<long>(&header), sizeof header, 0) == static_cast<long>(sizeof header)) {
    // Whole tables at a time: an entry each costs a tenth of a millisecond where system calls are slow.
    ElfW(Phdr) segments[16];
    ElfW(Dyn) entries[64];
    size_t count = header.e_phnum < 16 ? header.e_phnum : 16;
    long size = static_cast<long>(count * sizeof segments[0]);
    if (sys(SYS_pread64, fd, reinterpret_cast<long>(segments), size, static_cast<long>(header.e_phoff)) != size) count = 0;
    for (size_t i = 0; i < count; ++i) {
      if (segments[i].p_type != PT_DYNAMIC) continue;
      size_t bytes = segments[i].p_filesz < sizeof entries ? segments[i].p_filesz : sizeof entries;
      long got = sys(SYS_pread64, fd, reinterpret_cast<long>(entries), static_cast<long>(bytes), static_cast<long>(segments[i].p_offset));
      for (size_t at = 0; got > 0 && at < static_cast<size_t>(got) / sizeof entries[0] && entries[at].d_tag != DT_NULL; ++at)
        symbolic |= entries[at].d_tag == DT_SYMBOLIC || (entries[at].d_tag == DT_FLAGS && (entries[at].d_un.d_val & DF_SYMBOLIC));
    }
  }
  sys(SYS_close, fd);
  return symbolic;
}

}  // namespace berth::shim
