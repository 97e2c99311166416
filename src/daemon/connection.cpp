#include "daemon/connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

#include "wire/guest_protocol.h"

namespace berth::daemon {
namespace {

// Packets handed on in one go, so that one busy peer can't keep the loop to itself.
constexpr int kBurst = 64;

}  // namespace

Peer peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {0, static_cast<uid_t>(-1)};
  return {credentials.pid, credentials.uid};
}

Connection::Connection(asio::io_context& loop, UniqueFd socket, size_t max_queued_bytes)
    : socket_(loop, socket.get()), peer_(peer_of(socket.get())), max_queued_bytes_(max_queued_bytes) {
  socket.release();
  socket_.native_non_blocking(true);
}

void Connection::start() { wait_readable(); }

void Connection::wait_readable() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](asio::error_code error) {
    if (error || !self->open_) return;
    self->read_arrived();
    if (self->after_read) self->after_read();
    if (self->open_) self->wait_readable();
  });
}

void Connection::read_arrived() {
  // One buffer for all connections: they belong to one thread, and handlers copy what they keep.
  static thread_local std::vector<char> buffer(wire::kMaxPacket + 1);
  for (int i = 0; i < kBurst && open_ && !closing_; ++i) {
    ssize_t size = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) return close();
    auto self = shared_from_this();
    auto handler = on_packet;  // it may be replaced while it runs
    if (handler) handler({buffer.data(), static_cast<size_t>(size)});
  }
}

bool Connection::send_now(const std::string& packet, int fd, int second_fd) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  int fds[2];
  size_t count = 0;
  for (int each : {fd, second_fd})
    if (each >= 0) fds[count++] = each;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  ssize_t sent;
  do sent = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
  close();
  return true;
}

void Connection::send(std::string packet, int fd, int second_fd) {
  if (!open_ || closing_) return;
  if (queue_.empty() && send_now(packet, fd, second_fd)) return;
  if (!open_) return;
  queued_bytes_ += packet.size();
  if (queued_bytes_ > max_queued_bytes_) return close();
  auto copy = [](int each) { return UniqueFd(each >= 0 ? ::fcntl(each, F_DUPFD_CLOEXEC, 0) : -1); };
  queue_.push_back({std::move(packet), copy(fd), copy(second_fd)});
  wait_writable();
}

void Connection::wait_writable() {
  if (std::exchange(waiting_writable_, true)) return;
  socket_.async_wait(asio::posix::stream_descriptor::wait_write, [self = shared_from_this()](asio::error_code error) {
    self->waiting_writable_ = false;
    if (!error && self->open_) self->flush();
  });
}

void Connection::flush() {
  while (open_ && !queue_.empty()) {
    if (!send_now(queue_.front().packet, queue_.front().fd.get(), queue_.front().second_fd.get())) return wait_writable();
    if (!open_) return;
    queued_bytes_ -= queue_.front().packet.size();
    queue_.pop_front();
  }
  if (closing_) close();
}

void Connection::close_after_sending() {
  closing_ = true;
  if (queue_.empty()) close();
}

void Connection::close() {
  if (!std::exchange(open_, false)) return;
  queue_.clear();
  asio::error_code ignored;
  socket_.close(ignored);
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    auto closed = std::exchange(self->on_closed, nullptr);
    self->on_packet = nullptr;
    self->after_read = nullptr;
    if (closed) closed();
    if (auto gone = std::exchange(self->on_gone, nullptr)) gone();
  });
}

}  // namespace berth::daemon
