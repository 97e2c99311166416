// One accepted connection: whole packets in, whole packets out, never blocking. Owned by the event loop.
#pragma once
#include <asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/process.h"
#include "base/unique_fd.h"

namespace berth::daemon {

// Who is at the other end, by the kernel's word.
struct Peer {
  pid_t pid = 0;  // 0: in a process namespace that we can't see
  uid_t uid = 0;
};
Peer peer_of(int socket);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using OnPacket = std::function<void(std::string_view)>;

  Connection(asio::io_context& loop, UniqueFd socket, size_t max_queued_bytes);

  // Begins to read. on_packet gets each packet; after_read is called when a batch has been handed on; on_closed once,
  // later and never from inside another call of this object. The owner may replace the handlers at any time.
  void start();
  OnPacket on_packet;
  std::function<void()> after_read;
  std::function<void()> on_closed;
  std::function<void()> on_gone;  // the same, for whoever counts connections

  // Hands on what has arrived already, without waiting and without after_read. Not to be called from on_packet.
  void read_arrived();

  // Sends or queues a packet, with those descriptors that are not negative. Ends the connection if the peer lets too much pile up.
  void send(std::string packet, int fd = -1, int second_fd = -1);
  template <class Message>
  void send_message(const Message& message, int fd = -1, int second_fd = -1) {
    send(std::string(reinterpret_cast<const char*>(&message), sizeof message), fd, second_fd);
  }

  // Ends it once all that is queued has been sent; or at once.
  void close_after_sending();
  void close();

  bool is_open() const { return open_; }
  const Peer& peer() const { return peer_; }
  int fd() { return socket_.native_handle(); }

 private:
  struct Outgoing {
    std::string packet;
    UniqueFd fd, second_fd;
  };
  void wait_readable();
  void wait_writable();
  void flush();
  bool send_now(const std::string& packet, int fd, int second_fd);

  asio::posix::stream_descriptor socket_;
  const Peer peer_;
  const size_t max_queued_bytes_;
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
  bool open_ = true, waiting_writable_ = false, closing_ = false;
};

}  // namespace berth::daemon
