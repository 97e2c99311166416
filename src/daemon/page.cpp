#include "daemon/page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace berth::daemon {

Result<Page> Page::create() {
  auto failed = [](const char* what) {
    return Error{"internal", std::string("cannot make a client's page (") + what + "): " + std::strerror(errno)};
  };
  UniqueFd fd(::memfd_create("berth-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return failed("memfd_create");
  if (::ftruncate(fd.get(), sizeof(wire::DaemonPage)) != 0) return failed("ftruncate");
  void* memory = ::mmap(nullptr, sizeof(wire::DaemonPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return failed("mmap");
  Page page;
  page.page_ = ::new (memory) wire::DaemonPage;
  page->magic = wire::kMagic;
  page->layout = wire::kPageLayout;
  page->size = sizeof(wire::DaemonPage);
  // Before Linux 5.1 there is no FUTURE_WRITE seal; the read-only descriptor then still keeps other users out.
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) != 0 && ::fcntl(fd.get(), F_ADD_SEALS, seals) != 0)
    return failed("seals");
  std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  page.reader_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!page.reader_) return failed("open");
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
