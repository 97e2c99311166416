#include "daemon/device_lock.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "daemon/connection.h"
#include "daemon/users.h"

namespace berth::daemon {
namespace {

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

}  // namespace

UniqueFd lock_device(const std::string& uuid, std::string* holder) {
  std::string name = lock_name(uuid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  auto* plain = reinterpret_cast<sockaddr*>(&address);

  UniqueFd lock(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (lock && ::bind(lock.get(), plain, size) == 0 && ::listen(lock.get(), 1) == 0) return lock;
  UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  *holder = "another daemon";
  if (probe && ::connect(probe.get(), plain, size) == 0) {
    Peer peer = peer_of(probe.get());
    *holder = user_name(peer.uid) + " (process " + std::to_string(peer.pid) + ")";
  }
  return UniqueFd();
}

}  // namespace berth::daemon
