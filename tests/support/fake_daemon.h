// A daemon in a thread of the test: speaks the guests' protocol, grants or refuses as told, owns one page.
// Made before the guest attaches; sets BERTH_SOCKET for the process.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "wire/activity_page.h"
#include "wire/daemon_page.h"

namespace berth::test {

class FakeDaemon {
 public:
  FakeDaemon() {
    char folder[] = "/tmp/berth-test-XXXXXX";
    if (!mkdtemp(folder)) std::abort();
    folder_ = folder;
    path_ = folder_ + "/s";
    setenv("BERTH_SOCKET", path_.c_str(), 1);
    page_fd_ = memfd_create("page", MFD_CLOEXEC);
    if (ftruncate(page_fd_, sizeof(wire::DaemonPage)) != 0) std::abort();
    void* memory = mmap(nullptr, sizeof(wire::DaemonPage), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd_, 0);
    page = new (memory) wire::DaemonPage{};
    page->magic = wire::kMagic;
    page->layout = wire::kPageLayout;
    page->size = sizeof(wire::DaemonPage);
    activity = make_activity_page(&activity_fd_);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 64) != 0) std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() {
    stop_ = true;
    thread_.join();
    close(listener_);
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  // As the daemon makes them. The first client gets `activity`.
  static wire::ActivityPage* make_activity_page(int* fd) {
    *fd = memfd_create("activity", MFD_CLOEXEC);
    if (ftruncate(*fd, sizeof(wire::ActivityPage)) != 0) std::abort();
    void* memory = mmap(nullptr, sizeof(wire::ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    auto* made = new (memory) wire::ActivityPage{};
    made->magic = wire::kMagic;
    made->layout = wire::kActivityLayout;
    made->size = sizeof(wire::ActivityPage);
    return made;
  }

  // Lets the guest watch a page as that of client `id` (its device 0 is the guest's card of that number), or forget it, or look at
  // its own daemon page (id 0, Relation::none).
  void watch(uint64_t id, wire::Relation relation, int fd, int card = 0) {
    auto message = wire::make_message<wire::Watch>();
    message.client_id = id;
    message.relation = relation;
    std::memset(message.devices, -1, sizeof message.devices);
    message.devices[0] = static_cast<int8_t>(card);
    std::vector<int> descriptors;
    if (fd >= 0) descriptors.push_back(fd);
    if (!send_with(client_, &message, sizeof message, descriptors)) std::abort();
  }

  wire::DaemonPage* page;
  wire::ActivityPage* activity;
  std::atomic<int> mapped{0}, told_active{0};
  std::atomic<bool> refuse{false};        // over quota, for everything but contexts and what is taken already
  std::atomic<uint64_t> quota{wire::kNoQuota};  // of each device, for the page
  std::atomic<int64_t> held{0};           // granted less released, contexts apart
  std::atomic<int64_t> held_on[wire::kMaxDevices] = {};  // the same by the device that the message names
  std::atomic<int64_t> overhead{0};
  std::vector<int> virtual_cards;         // by virtual device, the guest's number of its card; empty: none. Before the hello.
  std::atomic<int> hellos{0}, reserves{0};
  std::atomic<int> refreshes[wire::kMaxDevices] = {};  // by the device that the message names

  static wire::Uuid virtual_uuid(uint32_t device) {
    wire::Uuid uuid{};
    uuid.bytes[0] = 0xbe;
    uuid.bytes[15] = static_cast<uint8_t>(device);
    return uuid;
  }

 private:
  void serve() {
    std::vector<pollfd> watched{{listener_, POLLIN, 0}};
    while (!stop_) {
      if (poll(watched.data(), watched.size(), 20) <= 0) continue;
      if (watched[0].revents) watched.push_back({accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), POLLIN, 0});
      for (size_t i = 1; i < watched.size(); ++i)
        if (watched[i].revents && !answer(watched[i].fd)) {
          close(watched[i].fd);
          watched.erase(watched.begin() + static_cast<long>(i--));
        }
    }
    for (size_t i = 1; i < watched.size(); ++i) close(watched[i].fd);
  }

  bool answer(int fd) {
    alignas(8) char packet[wire::kMaxPacket];
    ssize_t size = recv(fd, packet, sizeof packet, 0);
    if (size < static_cast<ssize_t>(sizeof(wire::Header))) return false;
    auto got = static_cast<size_t>(size);
    if (wire::check_message<wire::Hello>(packet, got)) return welcome(fd, *reinterpret_cast<wire::Hello*>(packet));
    if (wire::check_message<wire::Reserve>(packet, got)) {
      const auto& asked = *reinterpret_cast<wire::Reserve*>(packet);
      auto grant = wire::make_message<wire::Grant>(asked.header.sequence);
      bool context = asked.kind == wire::Kind::overhead && asked.bytes == 0;
      ++reserves;
      if (refuse && !context && asked.force != wire::Force::taken) grant.status = wire::GrantStatus::over_quota;
      else grant.bytes = context ? 1 << 20 : asked.bytes;
      (asked.kind == wire::Kind::overhead ? overhead : held) += static_cast<int64_t>(grant.bytes);
      if (asked.kind != wire::Kind::overhead) held_on[asked.device % wire::kMaxDevices] += static_cast<int64_t>(grant.bytes);
      return send(fd, &grant, sizeof grant, MSG_NOSIGNAL) == sizeof grant;
    }
    if (wire::check_message<wire::Mapped>(packet, got)) ++mapped;
    if (wire::check_message<wire::Active>(packet, got)) ++told_active;
    if (wire::check_message<wire::Refresh>(packet, got)) ++refreshes[reinterpret_cast<wire::Refresh*>(packet)->device % wire::kMaxDevices];
    if (wire::check_message<wire::Release>(packet, got)) {
      const auto& release = *reinterpret_cast<wire::Release*>(packet);
      (release.kind == wire::Kind::overhead ? overhead : held) -= static_cast<int64_t>(release.bytes);
      if (release.kind != wire::Kind::overhead) held_on[release.device % wire::kMaxDevices] -= static_cast<int64_t>(release.bytes);
    }
    return true;
  }

  bool welcome(int fd, const wire::Hello& hello) {
    ++hellos;
    page->virtual_devices = static_cast<uint32_t>(virtual_cards.size());
    for (uint32_t i = 0; i < page->virtual_devices; ++i) {
      page->devices[i].uuid = virtual_uuid(i);
      page->devices[i].card = hello.devices[virtual_cards[i]];
      page->devices[i].quota_bytes = page->devices[i].total_bytes = quota;
      page->devices[i].free_bytes = quota.load();
    }
    for (uint32_t i = 0; i < hello.device_count && virtual_cards.empty(); ++i) {
      page->devices[i].uuid = hello.devices[i];
      page->devices[i].card = hello.devices[i];
      page->devices[i].quota_bytes = quota;
      page->devices[i].total_bytes = quota;
      page->devices[i].free_bytes = quota.load();
    }
    page->device_count = virtual_cards.empty() ? hello.device_count : page->virtual_devices;
    auto reply = wire::make_message<wire::Welcome>(hello.header.sequence);
    reply.page_size = sizeof(wire::DaemonPage);
    client_ = fd;
    std::vector<int> descriptors{page_fd_};
    if (hello.features & wire::kFeatureActivity) descriptors.push_back(activity_fd_);
    return send_with(fd, &reply, sizeof reply, descriptors);
  }

  static bool send_with(int fd, void* packet, size_t size, const std::vector<int>& descriptors) {
    iovec part{packet, size};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      size_t bytes = descriptors.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }

  std::string folder_, path_;
  int listener_ = -1, page_fd_ = -1, activity_fd_ = -1;
  std::atomic<int> client_{-1};  // the last one that said hello
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace berth::test
