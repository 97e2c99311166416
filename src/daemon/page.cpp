#include "daemon/page.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "daemon/page_memory.h"

namespace berth::daemon {

Result<Page> Page::create() {
  auto memory = make_page_memory("berth-page", sizeof(wire::DaemonPage));
  if (!memory) return memory.error();
  Page page;
  page.page_ = ::new (memory->at) wire::DaemonPage;
  page->magic = wire::kMagic;
  page->layout = wire::kPageLayout;
  page->size = sizeof(wire::DaemonPage);
  bool sealed = keep_writers_out(memory->writer);  // we have mapped it
  page.reader_ = open_reader(memory->writer);
  if (!sealed || !page.reader_) return Error{"internal", std::string("cannot seal and open a client's page: ") + std::strerror(errno)};
  return page;
}

Page& Page::operator=(Page&& other) noexcept {
  std::swap(page_, other.page_);
  reader_ = std::move(other.reader_);
  return *this;
}

Page::~Page() {
  if (page_) ::munmap(page_, sizeof(wire::DaemonPage));
}

}  // namespace berth::daemon
