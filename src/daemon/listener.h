// The daemon's socket: one daemon a path, a stale one replaced, a live one left alone.
#pragma once
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::daemon {

class Listener {
 public:
  ~Listener();

  // Locks <path>.lock, which keeps other daemons off the socket and what belongs to it. Error in one clear line if the
  // path doesn't fit, can't be written or a daemon is there.
  Status lock(const std::string& path);

  // Listens on the path that is locked (mode 0666 if `everybody`, else 0600). on_accept is called on the loop.
  Status listen(asio::io_context& loop, bool everybody, std::function<void(UniqueFd)> on_accept);

  // Removes the socket, if it listens on one, and lets the lock go.
  void close();

 private:
  void wait();
  void accept_all();

  std::unique_ptr<asio::posix::stream_descriptor> socket_;
  UniqueFd lock_;
  std::string path_;
  std::function<void(UniqueFd)> on_accept_;
};

}  // namespace berth::daemon
