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

// What a daemon keeps beside its socket and names after it: berth.db and berthd.log where the socket is berth.sock, else
// NAME.db and NAME.log. Two daemons of one folder thus have files of their own.
std::string state_file_of(const std::string& socket);
std::string log_file_of(const std::string& socket);

// Why no daemon can be started at the socket `path`: "the folder /a/b does not exist", "/a is no folder", "you may not write
// to the folder /a", "no space is left in the folder /a ..."; "" if its folder is fine.
std::string folder_fault(const std::string& path);

// True if BERTH_SOCKET says where the daemon is.
bool socket_is_chosen();

// The sockets to try in order: BERTH_SOCKET alone if set; else the system's, then the user's.
Result<std::vector<std::string>> socket_candidates();

}  // namespace berth
