// Memory that the daemon makes and shares with guests: a memfd of a fixed size with one writer, which others can only map for
// reading.
#pragma once
#include "base/result.h"
#include "base/unique_fd.h"

namespace berth::daemon {

struct PageMemory {
  UniqueFd writer;  // can be mapped for writing until keep_writers_out
  void* at = nullptr;
};

// `size` bytes of zeroes, mapped here for writing; can neither shrink nor grow, so that reading it never faults.
Result<PageMemory> make_page_memory(const char* name, size_t size);

// From now on nobody can map it for writing who hasn't yet. Before Linux 5.1 there is no seal for that; the mode of the file
// and the read-only descriptor then still keep other users out.
// False if it could not be sealed at all.
bool keep_writers_out(const UniqueFd& writer);

// A descriptor that can only be mapped for reading; none if it can't be had.
UniqueFd open_reader(const UniqueFd& writer);

}  // namespace berth::daemon
