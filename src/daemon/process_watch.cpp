#include "daemon/process_watch.h"

#include <asio/post.hpp>

namespace berth::daemon {

void ProcessWatch::watch(OpenProcess process, std::function<void()> on_end) {
  ProcessId id = process.id;
  auto it = watched_.find(id);
  if (it != watched_.end()) {
    it->second.on_end.push_back(std::move(on_end));
    return;
  }
  it = watched_.emplace(id, Watched{asio::posix::stream_descriptor(loop_, process.pidfd.release()), {}}).first;
  it->second.on_end.push_back(std::move(on_end));
  it->second.pidfd.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](asio::error_code error) {
    if (error) return;
    auto ended = watched_.extract(id);
    for (auto& tell : ended.mapped().on_end) tell();
  });
}

void ProcessWatch::watch(ProcessId process, std::function<void()> on_end) {
  auto opened = open_process(process.pid);
  if (opened && opened->id == process) return watch(std::move(*opened), std::move(on_end));
  asio::post(loop_, std::move(on_end));
}

}  // namespace berth::daemon
