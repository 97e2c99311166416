#include "daemon/page_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace berth::daemon {

Result<PageMemory> make_page_memory(const char* name, size_t size) {
  auto failed = [&](const char* what) {
    return Error{"internal", std::string("cannot make the page ") + name + " (" + what + "): " + std::strerror(errno)};
  };
  PageMemory made;
  made.writer.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.writer) return failed("memfd_create");
  if (::ftruncate(made.writer.get(), static_cast<off_t>(size)) != 0) return failed("ftruncate");
  if (::fcntl(made.writer.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return failed("seals");
  made.at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.writer.get(), 0);
  if (made.at == MAP_FAILED) return failed("mmap");
  return made;
}

bool keep_writers_out(const UniqueFd& writer) {
  ::fcntl(writer.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  ::fchmod(writer.get(), 0444);
  return ::fcntl(writer.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

UniqueFd open_reader(const UniqueFd& writer) {
  return UniqueFd(::open(("/proc/self/fd/" + std::to_string(writer.get())).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace berth::daemon
