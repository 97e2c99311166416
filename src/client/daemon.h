// Finding the daemon, and starting a per-user one where none answers.
// Not for several threads at once: the environment and the process's children are read.
#pragma once
#include <sys/types.h>

#include <string>

#include "client/connection.h"

namespace berth::client {

// The daemon that answers first among the candidates (base/paths.h). Starts none; error `unreachable` if there is none.
Result<Connection> connect_daemon();

// The same, but starts a per-user daemon if none answers and waits for its socket, at most 5 s. The daemon shares out what
// BERTH_DRIVER asks for: an idle one of the user's that does not is replaced. If it has started one
// that still runs, *started is its pid: a child of this process, which whoever reaps children must know apart.
Result<Connection> connect_or_start_daemon(pid_t* started = nullptr);

// Where a per-user daemon is to listen: the last of the candidates, made absolute.
Result<std::string> own_socket();

// Starts berthd for `socket` and returns without waiting for it: a session of its own, nothing inherited but the
// environment, its output in the log file beside the socket. Its pid is a child of this process.
Result<pid_t> spawn_daemon(const std::string& socket);

// The last line that `file` has behind its first `from` bytes: berthd's last word, for messages ("" if there is none).
std::string last_line_of(const std::string& file, uint64_t from = 0);

}  // namespace berth::client
