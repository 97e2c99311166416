// A thread for what may block (NVML, files). Work runs in order; what comes after it runs on the event loop.
#pragma once
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <utility>

namespace berth::daemon {

class Worker {
 public:
  explicit Worker(asio::io_context& loop) : loop_(loop), thread_(1) {}

  // Does what is left and ends the thread; what would come after it on the loop is dropped.
  void finish() { thread_.join(); }

  // Runs work() on the worker, then then(result) on the loop.
  template <class Work, class Then>
  void run(Work work, Then then) {
    asio::post(thread_, [this, work = std::move(work), then = std::move(then)]() mutable {
      auto result = work();
      asio::post(loop_, [result = std::move(result), then = std::move(then)]() mutable { then(std::move(result)); });
    });
  }

 private:
  asio::io_context& loop_;
  asio::thread_pool thread_;
};

}  // namespace berth::daemon
