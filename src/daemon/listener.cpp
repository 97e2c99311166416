#include "daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <asio/post.hpp>
#include <cerrno>
#include <cstring>

#include "daemon/log.h"

namespace berth::daemon {
namespace {

constexpr int kBacklog = 1024;

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

Status Listener::open(asio::io_context& loop, const std::string& path, bool everybody,
                      std::function<void(UniqueFd)> on_accept) {
  auto address = address_of(path);
  if (!address) return address.error();
  constexpr const char* kElsewhere = "choose a place you can write to with --socket or BERTH_SOCKET";
  std::string lock_path = path + ".lock";
  lock_.reset(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) return cannot(path, std::string(lock_path) + ": " + std::strerror(errno), kElsewhere);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 || answers(*address)) {
    lock_.reset();
    return Error{"refused",
                 "a daemon is already listening on " + path + "; use it, end it, or choose another --socket"};
  }
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    lock_.reset();
    return cannot(path, "there is something else that is no socket", "remove it, or choose another --socket");
  }
  ::unlink(path.c_str());

  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::fchmod(socket.get(), everybody ? 0666 : 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(path.c_str(), everybody ? 0666 : 0600) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    auto error = cannot(path, std::strerror(errno), kElsewhere);
    lock_.reset();
    return error;
  }
  path_ = path;
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
  if (!socket_) return;
  socket_.reset();
  ::unlink(path_.c_str());
  lock_.reset();
}

}  // namespace berth::daemon
