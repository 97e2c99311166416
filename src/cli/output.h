// How every command speaks: results on stdout, messages on stderr with the prefix "berth: ", errors of --json on stdout.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace berth::cli {

using Json = nlohmann::json;

// Exit codes of all commands but run and doctor.
inline constexpr int kExitOk = 0, kExitRefused = 1, kExitUsage = 2;
// Those of run.
inline constexpr int kExitNoRoom = 75, kExitBerth = 125, kExitNotExecutable = 126, kExitNotFound = 127;

// One message; each of its lines gets the prefix. Control characters (a program's name may hold some) become '?'.
void say(std::string_view message);
std::string message_text(std::string_view message);

// Tells an error, as --json wants it or for people, and gives the exit code of a command that isn't run.
int fail(const Error& error, bool json = false);
int exit_code_of(const Error& error);

void print(std::string_view text);        // to stdout, as it is
void print_json(const Json& value);       // one document, indented
void print_json_line(const Json& value);  // one document a line, flushed

bool stdout_is_terminal();
bool use_colour();         // a terminal, and NO_COLOR is unset or empty, and TERM isn't dumb
size_t terminal_width();   // 0: not a terminal, so nothing need be cut

// Text for a cell: control characters replaced, so that a name can't steer the terminal.
std::string printable(std::string_view text);

}  // namespace berth::cli
