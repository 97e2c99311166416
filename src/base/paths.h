// Where berth's own files and sockets are. Host side; the guest has its own, equal rules in src/shim/locate.cpp.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace berth {

// The folder of the running executable, links resolved.
std::string executable_folder();

// <prefix>/lib/berth of the running executable: in the build tree and after installation alike <bin>/../lib/berth.
std::string library_folder();

// Where a per-user daemon keeps its socket and state: $XDG_RUNTIME_DIR/berth, else /tmp/berth-UID; made with mode 0700
// and refused if somebody else owns it or others may enter it.
Result<std::string> user_runtime_folder();

inline constexpr const char* kSystemSocket = "/run/berth/berth.sock";

// The sockets to try in order: BERTH_SOCKET alone if set; else the system's, then the user's.
Result<std::vector<std::string>> socket_candidates();

}  // namespace berth
