// What guest code stands on: our library runs inside programs that know nothing of it, on any of their threads, under any of
// their locks, in their signal handlers, after fork, while they exit.
//
// The rules, each with a test (docs/guest-rules.md): no libstdc++ or libgcc, no exceptions, no RTTI, no thread-safe statics,
// no static constructors or destructors, no signal handlers, no output unless BERTH_LOG asks, nothing of the program's
// changed. System calls go through `sys`, which is no cancellation point and keeps errno.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "wire/daemon_page.h"

#define BERTH_EXPORT __attribute__((visibility("default")))

namespace berth::shim {

// A system call that returns its result or -errno and leaves errno as it was.
long sys(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0);

uint64_t now_ns();  // CLOCK_MONOTONIC
void sleep_ns(uint64_t ns);

// Anonymous zeroed pages; null when there are none. Never freed pages are fine: the program's heap is not ours to use.
void* map_pages(size_t bytes);
void unmap_pages(void* pages, size_t bytes);

// Shared memory behind a descriptor, which fork children do not get; null if it can't be mapped.
void* map_shared(int fd, size_t bytes, int protection);

// A lock of one futex word. Never held across a call of the real driver, but for the two that are there for the order of such
// calls (StreamSlot::mark_lock, SplitExec::order_). Not inherited by fork children: it lives in memory that they don't use (see
// ForkPage).
class GuestLock {
 public:
  void lock();
  void unlock();

 private:
  std::atomic<uint32_t> word_{0};
};

class Locked {
 public:
  explicit Locked(GuestLock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  GuestLock& lock_;
};

class Client;

// The one page that says whether this process is a client. Fork: the page is MADV_WIPEONFORK, so a child reads zeroes: no
// client, no gate, attach lock free. The child never touches the parent's Client (its memory is a dead copy there).
// Before a process attaches, `berth_fork_page` points at a static page of zeroes.
struct ForkPage {
  const std::atomic<uint32_t>* gate;  // read by the assembly gates: must stay the first word
  std::atomic<Client*> client;
  std::atomic<uint32_t> captures;     // streams of this process being captured now
  GuestLock attach_lock;
};
extern "C" __attribute__((visibility("hidden"))) ForkPage* berth_fork_page;

// The page of this process, made on first use. Null without memory or WIPEONFORK (Linux 4.14): then it can be no client.
ForkPage* writable_fork_page();

inline Client* current_client() { return berth_fork_page->client.load(std::memory_order_acquire); }

// How deep this thread is inside us: a call that the driver makes while it serves one of ours goes straight through.
extern __thread int guest_depth __attribute__((tls_model("initial-exec"), visibility("hidden")));

// One line to the file that BERTH_LOG names ("stderr" allowed); nothing without it. A small subset of printf: %s %u %x %d.
void log_line(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace berth::shim
