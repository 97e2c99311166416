#include "daemon/device_lock.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "daemon/connection.h"
#include "daemon/users.h"

namespace berth::daemon {
namespace {

constexpr int kAskers = 64;

// Simulated cards of different folders are different cards, though their UUIDs are equal.
std::string lock_name(const std::string& uuid) {
  const char* driver = std::getenv("BERTH_DRIVER");
  const char* folder = std::getenv("BERTH_SIM_DIR");
  std::string name = "berth-" + uuid;
  if (driver && *driver)
    name += "-" +
            std::to_string(std::hash<std::string>{}(folder && *folder ? folder : "user " + std::to_string(::getuid())));
  return name;
}

// The socket that a daemon was told to listen on, by its command line: it is a stranger's process, but what it says is only
// shown to people.
std::string socket_of(pid_t pid) {
  if (pid <= 0 || short_command_of(pid) != "berthd") return "";
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::string socket;
  for (std::string word, before; std::getline(file, word, '\0'); before = word)
    if (before == "--socket") socket = word;
  bool plain = socket.size() < sizeof sockaddr_un::sun_path && std::all_of(socket.begin(), socket.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != 0x7f;
  });
  return plain ? socket : "";
}

}  // namespace

std::string text_of(const LockHolder& holder) {
  if (holder.user.empty()) return "unknown";
  if (holder.pid == 0) return holder.user;
  return holder.user + " (process " + std::to_string(holder.pid) + (holder.socket.empty() ? "" : ", " + holder.socket) +
         ")";
}

void answer_knocks(const UniqueFd& lock) {
  while (UniqueFd(::accept4(lock.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))) {
  }
}

UniqueFd lock_device(const std::string& uuid, LockHolder* holder) {
  std::string name = lock_name(uuid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  auto* plain = reinterpret_cast<sockaddr*>(&address);

  UniqueFd lock(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (lock && ::bind(lock.get(), plain, size) == 0 && ::listen(lock.get(), kAskers) == 0) return lock;
  // Who is known already and lives on need not be asked again.
  if (holder->pid != 0 && ::kill(holder->pid, 0) != 0 && errno == ESRCH) *holder = {};
  if (holder->pid != 0) return UniqueFd();
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe && ::connect(probe.get(), plain, size) == 0) {
    Peer peer = peer_of(probe.get());
    *holder = {user_name(peer.uid), peer.pid, socket_of(peer.pid)};
  }
  return UniqueFd();
}

}  // namespace berth::daemon
