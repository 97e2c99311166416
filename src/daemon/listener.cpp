#include "daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <asio/post.hpp>
#include <cerrno>
#include <cstring>

#include "base/paths.h"
#include "daemon/log.h"

namespace berth::daemon {
namespace {

constexpr int kBacklog = 1024;
constexpr const char* kElsewhere = "choose a place you can write to with --socket or BERTH_SOCKET";

Error cannot(const std::string& path, const std::string& why, const char* advice) {
  return {"internal", "cannot listen on " + path + ": " + why + "; " + advice};
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error{"usage", "the socket path is " + std::to_string(path.size()) + " characters long and " +
                              std::to_string(sizeof address.sun_path - 1) +
                              " are possible: choose a shorter one with --socket or BERTH_SOCKET"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Somebody answers there (though the lock was free: a daemon that isn't ours, or a lock file that was removed).
bool answers(const sockaddr_un& address) {
  UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe &&
         (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN);
}

}  // namespace

Listener::~Listener() { close(); }

Status Listener::lock(const std::string& path) {
  if (auto address = address_of(path); !address) return address.error();
  if (std::string fault = folder_fault(path); !fault.empty()) return cannot(path, fault, kElsewhere);
  std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return cannot(path, lock_path + ": " + std::strerror(errno), kElsewhere);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 || answers(*address_of(path)))
    return Error{"refused",
                 "a daemon is already listening on " + path + "; use it, end it, or choose another --socket"};
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode))
    return cannot(path, "what is there is no socket", "remove it, or choose another --socket");
  lock_ = std::move(lock);
  path_ = path;
  return Ok{};
}

Status Listener::listen(asio::io_context& loop, bool everybody, std::function<void(UniqueFd)> on_accept) {
  const sockaddr_un address = *address_of(path_);
  ::unlink(path_.c_str());  // of a daemon that is gone
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::fchmod(socket.get(), everybody ? 0666 : 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path_.c_str(), everybody ? 0666 : 0600) != 0 || ::listen(socket.get(), kBacklog) != 0)
    return cannot(path_, std::strerror(errno), kElsewhere);
  on_accept_ = std::move(on_accept);
  socket_ = std::make_unique<asio::posix::stream_descriptor>(loop, socket.release());
  wait();
  return Ok{};
}

void Listener::wait() {
  socket_->async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code error) {
    if (error || !socket_) return;
    accept_all();
    if (socket_) wait();
  });
}

void Listener::accept_all() {
  while (socket_) {
    UniqueFd connection(::accept4(socket_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!connection && (errno == EMFILE || errno == ENFILE)) {
      log_line("no more file descriptors: raise the limit (ulimit -n); a program could not attach");
      ::usleep(10000);  // the connection stays in the backlog
    }
    if (!connection) return;
    on_accept_(std::move(connection));
  }
}

void Listener::close() {
  if (socket_) {
    socket_.reset();
    ::unlink(path_.c_str());
  }
  lock_.reset();
}

}  // namespace berth::daemon
