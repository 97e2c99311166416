#include "sim/shared_state.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "sim/pages.h"
#include "sim/settings.h"
#include "sim/turns.h"

namespace berth::sim {
namespace {

constexpr uint64_t kMagic = 0x6d6973687472'6562;
constexpr uint32_t kVersion = 3;

std::atomic<State*> mapped{nullptr};
int my_slot = -1;

std::string text_of_errno(const std::string& what) { return what + ": " + std::strerror(errno); }

uint64_t state_bytes(uint64_t pages) { return sizeof(State) + sizeof(Page) * pages; }

uint64_t wanted_memory(uint32_t card) {
  return for_card(settings().memory, card, kDefaultMemory) / kPageBytes * kPageBytes;
}

// Two FNV-1a hashes, well mixed: a folder's cards are a machine of their own to everybody who compares UUIDs.
void make_uuid(const std::string& folder, uint32_t index, unsigned char* uuid) {
  for (uint64_t half = 0; half < 2; ++half) {
    uint64_t hash = 0xcbf29ce484222325 + half * 0x9e3779b97f4a7c15;
    for (unsigned char c : folder + "#" + std::to_string(index)) hash = (hash ^ c) * 0x100000001b3;
    hash ^= hash >> 29, hash *= 0xbf58476d1ce4e5b9, hash ^= hash >> 32;
    std::memcpy(uuid + 8 * half, &hash, 8);
  }
}

void make_robust(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

State* map_file(int fd, uint64_t bytes) {
  void* where = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return where == MAP_FAILED ? nullptr : static_cast<State*>(where);
}

// Files are as open as their folder: one user's, or everybody's where the folder is everybody's.
mode_t file_mode() {
  struct stat folder {};
  if (stat(settings().folder.c_str(), &folder) != 0) return 0600;
  return (folder.st_mode & 0666) | 0600;
}

// Null where there is no state, or one of another make.
State* map_existing() {
  UniqueFd fd = open_folder_file("state", O_RDWR);
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < sizeof(State)) return nullptr;
  State* found = map_file(fd.get(), static_cast<uint64_t>(info.st_size));
  if (!found) return nullptr;
  bool good = found->magic == kMagic && found->version == kVersion && found->layout == sizeof(State) &&
              state_bytes(found->pages) <= static_cast<uint64_t>(info.st_size);
  if (good) return found;
  munmap(found, static_cast<uint64_t>(info.st_size));
  return nullptr;
}

// The file appears under its name only when it is complete. The caller holds the folder's lock.
std::string create(State** result) {
  uint32_t cards = settings().cards.value_or(kDefaultCards);
  if (cards > kMaxCards) cards = kMaxCards;
  uint64_t pages = 0;
  for (uint32_t i = 0; i < cards; ++i) pages += wanted_memory(i) / kPageBytes;
  unlink(folder_file("state").c_str());
  for (int i = 0; i < kMaxCards; ++i) unlink(folder_file("card" + std::to_string(i)).c_str());
  for (uint32_t i = 0; i < cards; ++i) {
    UniqueFd fd = open_folder_file("card" + std::to_string(i), O_RDWR | O_CREAT | O_EXCL);
    if (!fd || ftruncate(fd.get(), static_cast<off_t>(wanted_memory(i))) != 0)
      return text_of_errno("card" + std::to_string(i));
  }
  UniqueFd fd = open_folder_file("state.new", O_RDWR | O_CREAT | O_TRUNC);
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(state_bytes(pages))) != 0) return text_of_errno("state");
  State* made = map_file(fd.get(), state_bytes(pages));
  if (!made) return text_of_errno("state");
  char* real = realpath(settings().folder.c_str(), nullptr);
  std::string folder = real ? real : settings().folder;
  std::free(real);
  made->version = kVersion, made->layout = sizeof(State), made->magic = kMagic;
  made->cards = cards, made->pages = pages;
  made->exit_ns = settings().exit_ns.value_or(kDefaultExitNs);
  make_robust(&made->mutex);
  for (auto& each : made->slots) make_robust(&each.life);
  uint64_t first_page = 0;
  for (uint32_t i = 0; i < kMaxCards; ++i) {
    Card& card = made->card[i];
    card.turn.holder = -1;
    make_uuid(folder, i, card.uuid);
    if (i >= cards) continue;
    card.memory = wanted_memory(i);
    card.pages = card.free_pages = static_cast<uint32_t>(card.memory / kPageBytes);
    card.first_page = first_page;
    card.compute_mode = for_card(settings().compute_modes, i, 0);
    first_page += card.pages;
  }
  if (rename(folder_file("state.new").c_str(), folder_file("state").c_str()) != 0) return text_of_errno("state");
  *result = made;
  return {};
}

bool agrees(const State& found) {
  auto cards = settings().cards;
  if (cards && std::min<uint32_t>(*cards, kMaxCards) != found.cards) return false;
  for (uint32_t i = 0; i < found.cards; ++i) {
    if (!settings().memory.empty() && wanted_memory(i) != found.card[i].memory) return false;
    if (for_card(settings().compute_modes, i, found.card[i].compute_mode) != found.card[i].compute_mode) return false;
  }
  return true;
}

// Everybody who has the cards open keeps a shared lock on "users". The program may close our descriptor behind our
// back, so a living slot counts too.
bool in_use(const State* found) {
  UniqueFd fd = open_folder_file("users", O_RDWR | O_CREAT);
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return true;
  if (!found) return false;
  for (uint32_t i = 0; i < found->slots_used; ++i)
    if (found->slots[i].state == SlotState::alive &&
        pthread_mutex_trylock(const_cast<pthread_mutex_t*>(&found->slots[i].life)) == EBUSY)
      return true;
  return false;
}

std::string attach() {
  const std::string& folder = settings().folder;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return text_of_errno(folder);
  UniqueFd lock = open_folder_file("lock", O_RDWR | O_CREAT);
  if (!lock) return text_of_errno(folder + "/lock");
  while (flock(lock.get(), LOCK_EX) != 0)
    if (errno != EINTR) return text_of_errno(folder + "/lock");
  State* found = map_existing();
  if ((!found || !agrees(*found)) && !in_use(found)) {
    if (found) munmap(found, state_bytes(found->pages));
    found = nullptr;
    if (std::string error = create(&found); !error.empty()) return folder + "/" + error;
  }
  if (!found) return folder + ": in use by simulated GPUs of another make";
  if (settings().exit_ns) found->exit_ns = *settings().exit_ns;
  UniqueFd users = open_folder_file("users", O_RDWR | O_CREAT);
  if (users) flock(users.get(), LOCK_SH | LOCK_NB);
  users.release();  // until the process ends
  mapped.store(found, std::memory_order_release);
  return {};
}

uint64_t start_time(const std::string& process = "self") {
  char text[1024] = {};
  UniqueFd fd(open(("/proc/" + process + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || read(fd.get(), text, sizeof text - 1) <= 0) return 0;
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at ? std::strtoull(at + 1, nullptr, 10) : 0;
}

uint64_t own_pid_space() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// The last number of the line "NSpid:" is the pid in the innermost namespace.
int32_t innermost_pid(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("NSpid:")) return std::atoi(line.c_str() + line.find_last_of("\t :") + 1);
  return 0;
}

// Marks who has died since the last look. Under the state's mutex.
void notice_dead(State& s, int64_t now) {
  for (uint32_t i = 0; i < s.slots_used; ++i) {
    ProcessSlot& each = s.slots[i];
    if (each.state != SlotState::alive || static_cast<int>(i) == my_slot) continue;
    int result = pthread_mutex_trylock(&each.life);
    if (result == EBUSY) continue;
    forget_turns(static_cast<int>(i));
    each.noticed_ns = now;
    each.state = SlotState::leaving;
    if (result == EOWNERDEAD) pthread_mutex_consistent(&each.life);
    pthread_mutex_unlock(&each.life);
  }
}

void clear_dead(State& s, int64_t now) {
  for (uint32_t i = 0; i < s.slots_used; ++i) {
    ProcessSlot& each = s.slots[i];
    if (each.state != SlotState::leaving || now - each.noticed_ns < s.exit_ns) continue;
    forget_process(static_cast<int>(i));
    each.pid = 0;
    each.state = SlotState::free;
  }
}

}  // namespace

std::string attach_state() {
  static std::mutex once;
  static std::string* outcome = nullptr;
  std::lock_guard guard(once);
  if (!outcome) outcome = new std::string(attach());
  return *outcome;
}

bool state_attached() { return mapped.load(std::memory_order_acquire) != nullptr; }
State& state() { return *mapped.load(std::memory_order_acquire); }
std::string folder_file(const std::string& name) { return settings().folder + "/" + name; }

UniqueFd open_folder_file(const std::string& name, int flags) {
  UniqueFd fd(open(folder_file(name).c_str(), flags | O_CLOEXEC, 0600));
  if (fd && (flags & O_CREAT)) (void)!fchmod(fd.get(), file_mode());  // not ours to change: it is right already
  return fd;
}

StateLock::StateLock() {
  State& s = state();
  if (pthread_mutex_lock(&s.mutex) == EOWNERDEAD) {
    recount_pages();
    pthread_mutex_consistent(&s.mutex);
  }
  int64_t now = now_ns();
  notice_dead(s, now);
  clear_dead(s, now);
}

StateLock::~StateLock() { pthread_mutex_unlock(&state().mutex); }

int join_state() {
  StateLock lock;
  State& s = state();
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessSlot& each = s.slots[i];
    if (each.state != SlotState::free) continue;
    int result = pthread_mutex_trylock(&each.life);
    if (result == EBUSY) continue;
    if (result == EOWNERDEAD) pthread_mutex_consistent(&each.life);
    each.pid = getpid();
    each.pid_space = own_pid_space();
    each.start_time = start_time();
    if (s.slots_used < static_cast<uint32_t>(i) + 1) s.slots_used = static_cast<uint32_t>(i) + 1;
    each.state = SlotState::alive;
    my_slot = i;
    return i;
  }
  return -1;
}

int own_slot() { return my_slot; }

int32_t pid_seen_here(const ProcessSlot& slot) {
  static const uint64_t here = own_pid_space();
  if (slot.pid_space == here) return slot.pid;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::string process = entry.path().filename();
    if (process[0] < '0' || process[0] > '9' || start_time(process) != slot.start_time) continue;
    if (innermost_pid(process) == slot.pid) return std::atoi(process.c_str());
  }
  return slot.pid;
}

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns) {
  timespec t{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &t, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void wake_slot(int which) {
  std::atomic<uint32_t>& word = state().slots[which].wake;
  word.fetch_add(1, std::memory_order_release);
  futex_wake(word);
}

}  // namespace berth::sim
