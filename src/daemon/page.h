// The page that one client reads (wire/daemon_page.h). The daemon alone writes it.
#pragma once
#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/daemon_page.h"

namespace berth::daemon {

class Page {
 public:
  // Made, mapped and sealed; the fields are still zero but for the head.
  static Result<Page> create();
  Page() = default;
  Page(Page&& other) noexcept : page_(std::exchange(other.page_, nullptr)), reader_(std::move(other.reader_)) {}
  Page& operator=(Page&& other) noexcept;
  ~Page();

  wire::DaemonPage* operator->() const { return page_; }
  wire::DaemonPage* get() const { return page_; }
  explicit operator bool() const { return page_ != nullptr; }

  // The descriptor for the client, which can only be mapped for reading; give_away() once it has been sent.
  int reader() const { return reader_.get(); }
  void give_away() { reader_.reset(); }

 private:
  wire::DaemonPage* page_ = nullptr;
  UniqueFd reader_;
};

}  // namespace berth::daemon
