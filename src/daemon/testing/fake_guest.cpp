// A program for the daemon's tests: does one thing for each line on its stdin and answers with one line. It speaks the
// guests' protocol, and the commands' where it has to play `berth run`.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <thread>

#include "wire/activity_page.h"
#include "wire/control.h"
#include "wire/daemon_page.h"
#include "wire/guest_protocol.h"

namespace {

using namespace berth::wire;

std::string socket_path;
int guest_fd = -1, control_fd = -1;
const DaemonPage* page = nullptr;
ActivityPage* activity = nullptr;
int activity_fd = -1;
std::map<uint64_t, const ActivityPage*> watched;  // by client id
std::string watch_log;                            // what was told since `watches` was last asked
uint64_t own_id = 0;
uint32_t sequence = 0;

int connect_daemon() {
  int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return ::close(fd), -1;
  return fd;
}

std::string receive(int fd, int* descriptor = nullptr, int* second = nullptr, int flags = 0) {
  static char buffer[kMaxPacket];
  iovec part{buffer, sizeof buffer};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | flags);
  if (size <= 0) return "";
  if (cmsghdr* header = CMSG_FIRSTHDR(&message)) {
    if (descriptor) std::memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    if (second && header->cmsg_len >= CMSG_LEN(2 * sizeof(int)))
      std::memcpy(second, CMSG_DATA(header) + sizeof(int), sizeof *second);
  }
  return {buffer, static_cast<size_t>(size)};
}

template <class Message>
bool read_as(const std::string& packet, Message* message) {
  if (!check_message<Message>(packet.data(), packet.size())) return false;
  std::memcpy(message, packet.data(), sizeof *message);
  return true;
}

// A packet that the daemon sends unasked.
bool take_watch(const std::string& packet, int descriptor) {
  Watch watch;
  if (!read_as(packet, &watch)) return false;
  if (watch.client_id == 0) return true;  // only wakes the helper of a real guest
  watched.erase(watch.client_id);
  std::string text = std::to_string(watch.client_id);
  if (watch.relation == Relation::none) {
    text += ":none";
  } else {
    text += watch.relation == Relation::higher ? ":higher" : ":peer";
    text += ":" + std::to_string(static_cast<int>(watch.devices[0]));
    void* memory = ::mmap(nullptr, sizeof(ActivityPage), PROT_READ, MAP_SHARED, descriptor, 0);
    std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    int again = ::open(path.c_str(), O_RDWR);  // whoever wants to write into another's page
    for (int fd : {descriptor, again})
      if (fd >= 0 && (::mmap(nullptr, sizeof(ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ||
                      ::ftruncate(fd, 16) == 0 || ::write(fd, "x", 1) == 1))
        text += ":writable";
    if (memory != MAP_FAILED) watched[watch.client_id] = static_cast<const ActivityPage*>(memory);
    ::close(again);
  }
  ::close(descriptor);
  watch_log += (watch_log.empty() ? "" : " ") + text;
  return true;
}

std::string show_watches() {
  for (;;) {
    int descriptor = -1;
    std::string packet = receive(guest_fd, &descriptor, nullptr, MSG_DONTWAIT);
    if (packet.empty() || !take_watch(packet, descriptor)) break;
  }
  return std::exchange(watch_log, "");
}

// The activity page, which the daemon may then seal.
std::string map_activity() {
  void* memory = ::mmap(nullptr, sizeof(ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, activity_fd, 0);
  if (memory == MAP_FAILED) return "no page";
  activity = static_cast<ActivityPage*>(memory);
  if (::ftruncate(activity_fd, 16) == 0) return "resizable";
  auto message = make_message<Mapped>(++sequence);
  return ::send(guest_fd, &message, sizeof message, MSG_NOSIGNAL) == sizeof message ? "ok" : "lost";
}

// `work SUBMITTED COMPLETED [SERVICE_US]`: so many batches in all on the first stream.
std::string work(std::istream& line) {
  uint32_t submitted = 0, completed = 0;
  uint64_t service = 0;
  line >> submitted >> completed >> service;
  ActivitySlot& slot = activity->slots[0];
  activity->slot_count.store(1);
  slot.submitted.store(submitted);
  slot.completed.store(completed);
  activity->devices[0].submissions.store(submitted);
  activity->devices[0].service_ns.store(service * 1000);
  return "ok";
}

// `show GO HELD_BY BLOCKER HELD_MS`: what the helper thread of a guest publishes.
std::string show(std::istream& line) {
  uint32_t go = 1, held_by = 0;
  uint64_t blocker = 0, held = 0;
  line >> go >> held_by >> blocker >> held;
  ActivityDevice& device = activity->devices[0];
  device.blocker.store(blocker);
  device.held_by.store(held_by);
  device.held_ns.store(held * 1000000);
  device.go.store(go);
  return "ok";
}

// The page changes under the daemon's eyes, for ever.
std::string scribble(std::istream& line) {
  unsigned seed = 1;
  line >> seed;
  std::thread([seed] {
    std::mt19937_64 random(seed);
    for (;;) reinterpret_cast<volatile uint64_t*>(activity)[random() % (sizeof(ActivityPage) / 8)] = random();
  }).detach();
  return "ok";
}

// gate, may_run, paused, window in us, budget in thousandths, starved in ms, longest whole graph in us
std::string show_gate() {
  const PageCard& card = page->cards[0];
  std::ostringstream text;
  text << page->gate << " " << card.may_run << " " << card.paused << " " << card.window_ns / 1000 << " "
       << card.excess << " " << card.starved_ns / 1000000 << " " << page->split_ns / 1000;
  return text.str();
}

std::string attach(std::istream& line) {
  std::string role, hex;
  line >> role;
  auto hello = make_message<Hello>(++sequence);
  hello.role = role == "viewer" ? Role::viewer : Role::client;
  hello.features = hello.role == Role::client ? kFeatureActivity : 0;
  std::strcpy(hello.shim_version, "test");
  for (; line >> hex; ++hello.device_count)
    for (size_t i = 0; i < 16; ++i)
      hello.devices[hello.device_count].bytes[i] = static_cast<uint8_t>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  guest_fd = connect_daemon();
  if (guest_fd < 0) return "unreachable";
  ::send(guest_fd, &hello, sizeof hello, 0);
  int descriptor = -1;
  activity_fd = -1;
  std::string packet = receive(guest_fd, &descriptor, &activity_fd);
  Refused refused;
  if (read_as(packet, &refused)) return "refused " + std::to_string(static_cast<int>(refused.why));
  Welcome welcome;
  if (!read_as(packet, &welcome) || descriptor < 0) return "lost";
  void* memory = ::mmap(nullptr, welcome.page_size, PROT_READ, MAP_SHARED, descriptor, 0);
  bool writable = ::mmap(nullptr, welcome.page_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) != MAP_FAILED ||
                  ::ftruncate(descriptor, 1 << 20) == 0;
  ::close(descriptor);
  if (memory == MAP_FAILED) return "no page";
  page = static_cast<const DaemonPage*>(memory);
  own_id = welcome.client_id;
  if (hello.features && activity_fd < 0) return "no activity page";
  return std::string("welcome ") + (welcome.restarted ? "restarted" : "fresh") + (writable ? " writable" : "");
}

template <class Message>
std::string send_message(const Message& message) {
  return ::send(guest_fd, &message, sizeof message, MSG_NOSIGNAL) == sizeof message ? "ok" : "lost";
}

Reserve reserve_message(std::istream& line) {
  auto message = make_message<Reserve>(++sequence);
  uint32_t kind = 0, force = 0;
  line >> message.device >> kind >> message.bytes >> force;
  message.kind = static_cast<Kind>(kind);
  message.force = static_cast<Force>(force);
  return message;
}

std::string await_grant() {
  Grant grant;
  int descriptor = -1;
  std::string packet = receive(guest_fd, &descriptor);
  while (take_watch(packet, descriptor)) packet = receive(guest_fd, &descriptor);
  if (!read_as(packet, &grant)) return "lost";
  if (grant.header.sequence != sequence) return "wrong sequence";
  const char* status[] = {"granted", "over_quota", "device_full", "unavailable"};
  return std::string(status[static_cast<int>(grant.status)]) + " " + std::to_string(grant.bytes) + " " +
         std::to_string(grant.available);
}

std::string show_page(std::istream& line) {
  size_t device = 0;
  line >> device;
  const PageDevice& there = page->devices[device];
  std::ostringstream text;
  text << there.total_bytes << " " << there.free_bytes << " " << there.used_bytes << " " << there.leaving_bytes;
  for (uint32_t i = 0; i < page->pid_count; ++i) text << " " << page->pids[i];
  return text.str();
}

// How many virtual devices there are, then of each of the page's devices its UUID and its card's.
std::string show_devices() {
  std::ostringstream text;
  text << page->virtual_devices;
  auto add = [&](const Uuid& uuid) {
    for (uint8_t byte : uuid.bytes) text << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
  };
  for (uint32_t i = 0; i < page->device_count; ++i) {
    text << " ";
    add(page->devices[i].uuid);
    text << ":";
    add(page->devices[i].card);
  }
  return text.str();
}

std::string control(std::istream& line) {
  std::string text;
  std::getline(line, text);
  if (control_fd < 0) control_fd = connect_daemon();
  std::string packet = control_packet(MessageType::control_request, text);
  if (::send(control_fd, packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return "lost";
  std::string whole;
  for (;;) {
    std::string piece = receive(control_fd);
    ControlPacket parsed;
    if (!parse_control_packet(piece, &parsed)) return "lost";
    if (parsed.type == MessageType::control_event) continue;
    whole += parsed.text;
    if (parsed.pieces_left == 0) return whole;
  }
}

void take_pipes(const std::string& prefix) {
  int in = ::open((prefix + ".in").c_str(), O_RDONLY), out = ::open((prefix + ".out").c_str(), O_WRONLY);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::close(in);
  ::close(out);
  std::cin.clear();
}

// `spawn PREFIX`: a child that takes its lines from PREFIX.in. With `orphan` there is a process between that ends.
std::string spawn(std::istream& line) {
  std::string prefix, how;
  line >> prefix >> how;
  pid_t pid = ::fork();
  if (pid > 0) {
    if (how == "orphan") ::waitpid(pid, nullptr, 0);
    return std::to_string(pid);
  }
  if (how == "orphan" && ::fork() > 0) ::_exit(0);
  if (how == "orphan") ::setsid();
  take_pipes(prefix);
  if (guest_fd >= 0 && how != "inherit") ::close(guest_fd);
  return "here " + std::to_string(::getpid());
}

std::string act(const std::string& word, std::istream& line) {
  if (word == "attach") return attach(line);
  if (word == "reserve") return send_message(reserve_message(line)) == "ok" ? await_grant() : "lost";
  if (word == "ask") return send_message(reserve_message(line));  // without waiting for the answer
  if (word == "answer") return await_grant();
  if (word == "release") {
    auto message = make_message<Release>(++sequence);
    uint32_t kind = 0;
    line >> message.device >> kind >> message.bytes;
    message.kind = static_cast<Kind>(kind);
    return send_message(message);
  }
  if (word == "holdings") {
    auto message = make_message<Holdings>(++sequence);
    uint32_t kind = 0;
    line >> message.device >> kind >> message.bytes >> message.last;
    message.kind = static_cast<Kind>(kind);
    return send_message(message);
  }
  if (word == "map") return map_activity();
  if (word == "work") return work(line);
  if (word == "show") return show(line);
  if (word == "active") return send_message(make_message<Active>(++sequence));
  if (word == "gate") return show_gate();
  if (word == "id") return std::to_string(own_id);
  if (word == "watches") return show_watches();
  if (word == "peek") {  // how many batches a watched client has submitted
    uint64_t client = 0;
    line >> client;
    return watched.contains(client) ? std::to_string(watched[client]->slots[0].submitted.load()) : "unknown";
  }
  if (word == "scribble") return scribble(line);
  if (word == "refresh") {
    auto message = make_message<Refresh>(++sequence);
    line >> message.device;
    return send_message(message);
  }
  if (word == "notice") {
    auto message = make_message<Notice>(++sequence);
    uint32_t code = 0;
    line >> code >> message.value >> message.text >> message.device;
    message.code = static_cast<NoticeCode>(code);
    return send_message(message);
  }
  if (word == "noise") {  // a packet of so many bytes
    size_t size = 0;
    line >> size;
    if (guest_fd < 0) guest_fd = connect_daemon();
    std::string noise(size, '\x5a');
    ::send(guest_fd, noise.data(), noise.size(), MSG_NOSIGNAL);
    return receive(guest_fd).empty() ? "lost" : "alive";
  }
  if (word == "close") return ::close(guest_fd), guest_fd = -1, "ok";
  if (word == "page") return show_page(line);
  if (word == "mode") {
    size_t device = 0;
    line >> device;
    return std::to_string(page->devices[device].compute_mode.load());
  }
  if (word == "devices") return show_devices();
  if (word == "control") return control(line);
  if (word == "hang_up") return ::close(control_fd), control_fd = -1, "ok";
  if (word == "spawn") return spawn(line);
  if (word == "subreaper") return ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? "ok" : "failed";
  if (word == "exec") {
    ::execl("/proc/self/exe", "fake_guest", socket_path.c_str(), nullptr);
    return "failed";
  }
  return "what?";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  socket_path = argv[1];
  std::string text;
  char c;
  // Read byte by byte: what follows a line must be left for the program after exec, and for children.
  while (::read(0, &c, 1) == 1) {
    if (c != '\n') {
      text += c;
      continue;
    }
    std::istringstream line(text);
    text.clear();
    std::string word;
    line >> word;
    if (word == "exit") break;
    std::string answer = act(word, line) + "\n";
    if (::write(1, answer.data(), answer.size()) < 0) break;
  }
  return 0;
}
