#include "shim/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace berth::shim {

__thread int guest_depth = 0;

namespace {
// All zero: no client. Its own page-sized storage is only ever read, and its lock is never taken.
constinit ForkPage no_client_page{};
}  // namespace

ForkPage* berth_fork_page = &no_client_page;

long sys(long number, long a, long b, long c, long d, long e, long f) {
  int saved = errno;
  long result = ::syscall(number, a, b, c, d, e, f);
  if (result == -1) result = -errno;
  errno = saved;
  return result;
}

uint64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_ns(uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1000000000u), static_cast<long>(ns % 1000000000u)};
  sys(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, reinterpret_cast<long>(&t), 0);
}

void* map_pages(size_t bytes) {
  long pages = sys(SYS_mmap, 0, static_cast<long>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages < 0 ? nullptr : reinterpret_cast<void*>(pages);
}

void unmap_pages(void* pages, size_t bytes) { sys(SYS_munmap, reinterpret_cast<long>(pages), static_cast<long>(bytes)); }

void* map_shared(int fd, size_t bytes, int protection) {
  long at = sys(SYS_mmap, 0, static_cast<long>(bytes), protection, MAP_SHARED, fd, 0);
  if (at < 0) return nullptr;
  sys(SYS_madvise, at, static_cast<long>(bytes), MADV_DONTFORK);
  return reinterpret_cast<void*>(at);
}

// 0 free, 1 held, 2 held with waiters.
void GuestLock::lock() {
  uint32_t free = 0;
  if (word_.compare_exchange_strong(free, 1, std::memory_order_acquire)) return;
  while (word_.exchange(2, std::memory_order_acquire) != 0)
    sys(SYS_futex, reinterpret_cast<long>(&word_), FUTEX_WAIT_PRIVATE, 2, 0);
}

void GuestLock::unlock() {
  if (word_.exchange(0, std::memory_order_release) == 2) sys(SYS_futex, reinterpret_cast<long>(&word_), FUTEX_WAKE_PRIVATE, 1);
}

ForkPage* writable_fork_page() {
  ForkPage* page = __atomic_load_n(&berth_fork_page, __ATOMIC_ACQUIRE);
  if (page != &no_client_page) return page;
  constexpr size_t kBytes = 4096;
  static_assert(sizeof(ForkPage) <= kBytes);
  void* fresh = map_pages(kBytes);
  if (!fresh) return nullptr;
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
  if (sys(SYS_madvise, reinterpret_cast<long>(fresh), kBytes, MADV_WIPEONFORK) != 0) {
    unmap_pages(fresh, kBytes);
    return nullptr;
  }
  if (!__atomic_compare_exchange_n(&berth_fork_page, &page, static_cast<ForkPage*>(fresh), false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    unmap_pages(fresh, kBytes);
    return page;
  }
  return static_cast<ForkPage*>(fresh);
}

void log_line(const char* format, ...) {
  const char* path = ::getenv("BERTH_LOG");
  if (!path || !*path) return;
  int saved = errno;
  char line[512];
  va_list list;
  va_start(list, format);
  int used = ::snprintf(line, sizeof line, "berth[%ld]: ", sys(SYS_getpid));
  used += ::vsnprintf(line + used, sizeof line - static_cast<size_t>(used) - 1, format, list);
  va_end(list);
  if (used > static_cast<int>(sizeof line) - 2) used = sizeof line - 2;
  line[used++] = '\n';
  bool to_stderr = ::strcmp(path, "stderr") == 0;
  long fd = to_stderr ? 2 : sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) {
    sys(SYS_write, fd, reinterpret_cast<long>(line), used);
    if (!to_stderr) sys(SYS_close, fd);
  }
  errno = saved;
}

}  // namespace berth::shim
