// Tells when processes end, through their pidfds. Owned by the event loop.
#pragma once
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <map>
#include <vector>

#include "base/process.h"

namespace berth::daemon {

class ProcessWatch {
 public:
  explicit ProcessWatch(asio::io_context& loop) : loop_(loop) {}

  // on_end is called once, on the loop, when the process ends. Watching a process several times costs one descriptor.
  void watch(OpenProcess process, std::function<void()> on_end);

  // The same for a process that may have ended already: then on_end is called at the next turn of the loop.
  void watch(ProcessId process, std::function<void()> on_end);

 private:
  struct Watched {
    asio::posix::stream_descriptor pidfd;
    std::vector<std::function<void()>> on_end;
  };
  asio::io_context& loop_;
  std::map<ProcessId, Watched> watched_;
};

}  // namespace berth::daemon
