// What the commands that ask the daemon one thing have in common.
#pragma once
#include <functional>

#include "cli/output.h"
#include "client/daemon.h"

namespace berth::cli {

enum class NoDaemon { is_error, start_one };

// True if no daemon runs where one would be by default: then there is nothing to show, which is no fault. Where BERTH_SOCKET
// says that a daemon is, it is one.
bool is_only_idle(const Error& error);

// One request to the daemon, one reply.
Result<Json> ask_daemon(const Json& request, NoDaemon without = NoDaemon::is_error);

// Shows a reply: as JSON, or with `view`. Gives the exit code; an error is told.
int show(const Result<Json>& reply, bool json, const std::function<std::string(const Json&)>& view);

}  // namespace berth::cli
