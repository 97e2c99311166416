#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim/client.h"

namespace berth::shim {
namespace {

// How many descriptors the process's table holds now; 0 if the kernel doesn't say.
long descriptor_table_size() {
  long fd = sys(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/status"), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[2048];
  long got = sys(SYS_read, fd, reinterpret_cast<long>(text), sizeof text - 1);
  sys(SYS_close, fd);
  if (got <= 0) return 0;
  text[got] = 0;
  static constexpr char kKey[] = "\nFDSize:";
  const char* line = ::strstr(text, kKey);
  long size = 0;
  for (const char* c = line ? line + sizeof kKey - 1 : ""; *c && *c != '\n'; ++c)
    if (*c >= '0' && *c <= '9') size = size * 10 + (*c - '0');
  return size;
}

// Moves the descriptor up, out of the way of programs that count on the low numbers, but within the table as it is: to make
// a threaded process's table grow costs a grace period of the kernel (10 to 30 ms were seen).
int move_high(int fd) {
  long size = descriptor_table_size();
  rlimit limit{64, 64};
  sys(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, reinterpret_cast<long>(&limit));
  if (static_cast<unsigned long>(size) > limit.rlim_cur) size = static_cast<long>(limit.rlim_cur);
  long high = size >= 32 ? sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, size - 16) : -1;
  if (high < 0) return fd;
  sys(SYS_close, fd);
  return static_cast<int>(high);
}

int connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = ::strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) return -1;
  ::memcpy(address.sun_path, path, length);
  long fd = sys(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  timeval patience{static_cast<time_t>(kDaemonPatienceNs / 1'000'000'000), 0};
  sys(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, reinterpret_cast<long>(&patience), sizeof patience);
  sys(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, reinterpret_cast<long>(&patience), sizeof patience);
  long result;
  do {
    result = sys(SYS_connect, fd, reinterpret_cast<long>(&address),
                 static_cast<long>(offsetof(sockaddr_un, sun_path) + length + 1));
  } while (result == -EINTR);
  if (result < 0) {
    sys(SYS_close, fd);
    return -1;
  }
  return move_high(static_cast<int>(fd));
}

// The same order as src/base/paths.h, and at last the place that `berth run --isolate` makes.
int connect_anywhere() {
  const char* chosen = ::getenv("BERTH_SOCKET");
  if (chosen && *chosen) return connect_to(chosen);
  int fd = connect_to("/run/berth/berth.sock");
  if (fd >= 0) return fd;
  char path[sizeof(sockaddr_un::sun_path)];
  const char* runtime = ::getenv("XDG_RUNTIME_DIR");
  static constexpr char kName[] = "/berth/berth.sock";
  size_t length = runtime ? ::strlen(runtime) : 0;
  if (length && runtime[0] == '/' && length + sizeof kName < sizeof path) {
    ::memcpy(path, runtime, length);
    ::memcpy(path + length, kName, sizeof kName);
    fd = connect_to(path);
    if (fd >= 0) return fd;
  }
  unsigned uid = static_cast<unsigned>(sys(SYS_getuid));
  char digits[12];
  int count = 0;
  do digits[count++] = static_cast<char>('0' + uid % 10);
  while (uid /= 10);
  ::memcpy(path, "/tmp/berth-", 11);
  length = 11;
  while (count) path[length++] = digits[--count];
  path[length] = 0;
  struct stat folder;  // anybody may make files in /tmp: the folder must be ours
  if (sys(SYS_newfstatat, AT_FDCWD, reinterpret_cast<long>(path), reinterpret_cast<long>(&folder), AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISDIR(folder.st_mode) || (folder.st_mode & 077) || folder.st_uid != static_cast<uid_t>(sys(SYS_getuid)))
    return -1;
  ::memcpy(path + length, "/berth.sock", 12);
  return connect_to(path);
}

constexpr int kMostDescriptors = 2;

// One packet with the descriptors that came with it. A negative error number, or 0 when the other side has closed.
long receive_packet(int fd, void* out, size_t size, int flags, int* descriptors, int* count) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  iovec part{out, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  *count = 0;
  long got;
  do got = sys(SYS_recvmsg, fd, reinterpret_cast<long>(&message), MSG_CMSG_CLOEXEC | flags);
  while (got == -EINTR);
  cmsghdr* header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    *count = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    ::memcpy(descriptors, CMSG_DATA(header), static_cast<size_t>(*count) * sizeof(int));
  }
  return got;
}

// True if the packet was one that the daemon sends unasked; its descriptors are then taken care of.
bool take_unasked(const void* packet, size_t size, const int* descriptors, int count, Activity& activity) {
  if (!wire::check_message<wire::Watch>(packet, size)) {
    for (int i = 0; i < count; ++i) sys(SYS_close, descriptors[i]);
    return false;
  }
  for (int i = 1; i < count; ++i) sys(SYS_close, descriptors[i]);
  wire::Watch watch;
  ::memcpy(&watch, packet, sizeof watch);
  activity.watch(watch, count ? descriptors[0] : -1);
  return true;
}

}  // namespace

bool Connection::open(const Introduction& introduction, bool* refused) {
  *refused = false;
  fd_ = connect_anywhere();
  if (fd_ < 0) return false;
  struct stat info;
  if (sys(SYS_newfstatat, fd_, reinterpret_cast<long>(""), reinterpret_cast<long>(&info), AT_EMPTY_PATH) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  if (hello(introduction, refused)) return true;
  close();
  return false;
}

bool Connection::hello(const Introduction& introduction, bool* refused) {
  auto hello = wire::make_message<wire::Hello>(1);
  hello.role = introduction.role;
  hello.features = introduction.role == wire::Role::client ? wire::kFeatureActivity : 0;
  hello.driver_version = introduction.driver_version;
  hello.unknown_symbols = introduction.unknown_symbols;
  hello.missing_symbols = introduction.missing_symbols;
  hello.device_count = introduction.device_count;
  ::memcpy(hello.devices, introduction.devices, sizeof hello.devices);
  ::strncpy(hello.shim_version, BERTH_VERSION, sizeof hello.shim_version - 1);
  if (!send(&hello, sizeof hello, true)) return false;

  union { wire::Welcome welcome; wire::Refused refused; } reply{};
  int descriptors[kMostDescriptors], count;
  long size = receive_packet(fd_, &reply, sizeof reply, 0, descriptors, &count);
  bool welcome = size > 0 && wire::check_message<wire::Welcome>(&reply, static_cast<size_t>(size)) && count > 0;
  if (welcome) welcome = map_pages_of(descriptors, count, reply.welcome.page_size);
  for (int i = 0; i < count; ++i) sys(SYS_close, descriptors[i]);
  if (!welcome && size > 0 && wire::check_message<wire::Refused>(&reply, static_cast<size_t>(size))) {
    *refused = true;
    log_line("the daemon refused this process (%u)", static_cast<unsigned>(reply.refused.why));
  }
  if (welcome && activity_page_) {
    auto mapped = wire::make_message<wire::Mapped>();
    welcome = send(&mapped, sizeof mapped, true);
  }
  return welcome;
}

// Older pages stay mapped: another thread may be reading one, and the device may still write to it.
bool Connection::map_pages_of(const int* descriptors, int count, uint32_t page_size) {
  if (page_size < sizeof(wire::DaemonPage)) return false;
  auto* page = static_cast<const wire::DaemonPage*>(map_shared(descriptors[0], sizeof(wire::DaemonPage), PROT_READ));
  if (!page) return false;
  if (page->magic != wire::kMagic || page->layout != wire::kPageLayout) {
    unmap_pages(const_cast<wire::DaemonPage*>(page), sizeof(wire::DaemonPage));
    return false;
  }
  page_ = page;
  activity_page_ = nullptr;
  if (count < 2) return true;
  auto* own = static_cast<wire::ActivityPage*>(map_shared(descriptors[1], sizeof(wire::ActivityPage), PROT_READ | PROT_WRITE));
  if (own && own->magic == wire::kMagic && own->layout == wire::kActivityLayout) activity_page_ = own;
  else if (own) unmap_pages(own, sizeof(wire::ActivityPage));
  return true;
}

void Connection::close() {
  if (fd_ >= 0 && is_ours()) sys(SYS_close, fd_);
  fd_ = -1;
}

bool Connection::is_ours() const {
  struct stat info;
  return fd_ >= 0 &&
         sys(SYS_newfstatat, fd_, reinterpret_cast<long>(""), reinterpret_cast<long>(&info), AT_EMPTY_PATH) == 0 &&
         info.st_dev == device_ && info.st_ino == inode_;
}

bool Connection::send(const void* message, size_t size, bool wait) {
  long sent;
  do sent = sys(SYS_sendto, fd_, reinterpret_cast<long>(message), static_cast<long>(size),
                MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT), 0, 0);
  while (sent == -EINTR);
  return sent == static_cast<long>(size);
}

bool Connection::receive(void* out, size_t size, uint32_t sequence, Activity& activity) {
  uint64_t until = now_ns() + kDaemonPatienceNs;
  do {
    alignas(8) char packet[512];
    int descriptors[kMostDescriptors], count;
    long got = receive_packet(fd_, packet, sizeof packet, 0, descriptors, &count);
    if (got < static_cast<long>(sizeof(wire::Header))) return false;
    if (take_unasked(packet, static_cast<size_t>(got), descriptors, count, activity)) continue;
    wire::Header header;
    ::memcpy(&header, packet, sizeof header);
    if (header.sequence != sequence) continue;  // an answer to a question that we gave up on
    if (got != static_cast<long>(size)) return false;
    ::memcpy(out, packet, size);
    return true;
  } while (now_ns() < until);
  return false;
}

void Connection::receive_unasked(Activity& activity) {
  alignas(8) char packet[512];
  int descriptors[kMostDescriptors], count;
  for (;;) {
    long got = receive_packet(fd_, packet, sizeof packet, MSG_DONTWAIT, descriptors, &count);
    if (got <= 0) return;
    take_unasked(packet, static_cast<size_t>(got), descriptors, count, activity);
  }
}

}  // namespace berth::shim
