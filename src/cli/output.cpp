#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace berth::cli {

std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return result;
}

std::string message_text(std::string_view message) {
  std::string result;
  while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
  for (size_t from = 0; from <= message.size();) {
    size_t to = std::min(message.find('\n', from), message.size());
    result += "berth: " + printable(message.substr(from, to - from)) + "\n";
    from = to + 1;
  }
  return result;
}

void say(std::string_view message) {
  std::string text = message_text(message);
  std::fwrite(text.data(), 1, text.size(), stderr);  // unbuffered: one write
  std::fflush(stderr);
}

int exit_code_of(const Error& error) { return error.code == "usage" ? kExitUsage : kExitRefused; }

int fail(const Error& error, bool json) {
  if (json)
    print_json({{"error", {{"code", error.code}, {"message", error.message}}}});
  else
    say(error.message);
  return exit_code_of(error);
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_json(const Json& value) { print(value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

void print_json_line(const Json& value) {
  print(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  std::fflush(stdout);
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

bool use_colour() {
  const char* no = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return stdout_is_terminal() && !(no && *no) && terminal && std::strcmp(terminal, "dumb") != 0;
}

size_t terminal_width() {
  if (!stdout_is_terminal()) return 0;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace berth::cli
