#include "cli/top_screen.h"

#define NCURSES_NOMACROS  // else words such as `timeout` and `move` are macros
#include <curses.h>
#include <locale.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/output.h"

namespace berth::cli {
namespace {

constexpr int kEscapeDelayMs = 25;  // an Escape key alone; usually a whole second

Error no_terminal(const std::string& why) {
  return {"usage", "berth top needs a terminal: " + why + "; berth ps shows the same to files and programs"};
}

// A colour of its own for each meaning, on the terminal's own background.
short pair_of(TopStyle style) { return static_cast<short>(1 + static_cast<int>(style)); }

void set_up_colours() {
  start_color();
  use_default_colors();
  init_pair(pair_of(TopStyle::time), COLOR_GREEN, -1);
  init_pair(pair_of(TopStyle::memory), COLOR_BLUE, -1);
  init_pair(pair_of(TopStyle::promised), COLOR_CYAN, -1);
  init_pair(pair_of(TopStyle::trouble), COLOR_RED, -1);
}

attr_t attribute_of(TopStyle style) {
  if (style == TopStyle::heading || style == TopStyle::trouble) return A_BOLD;
  return style == TopStyle::selected ? A_REVERSE : A_NORMAL;
}

bool has_colour(TopStyle style) {
  return style != TopStyle::plain && style != TopStyle::heading && style != TopStyle::selected;
}

}  // namespace

Result<std::unique_ptr<TopScreen>> TopScreen::open() {
  if (::isatty(STDIN_FILENO) != 1) return no_terminal("the standard input is none");
  if (::isatty(STDOUT_FILENO) != 1) return no_terminal("the standard output is none");
  const char* type = std::getenv("TERM");
  if (!type || !*type) return no_terminal("TERM, its type, is not set");
  ::setlocale(LC_CTYPE, "");  // names may hold more than ASCII
  SCREEN* screen = newterm(nullptr, stdout, stdin);
  if (!screen || !tigetstr("cup")) {
    if (screen) endwin(), delscreen(screen);
    return no_terminal("TERM is '" + printable(type) + "', which is unknown here or cannot place its cursor");
  }
  sigset_t taken, before;
  sigemptyset(&taken);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) sigaddset(&taken, number);
  UniqueFd signals(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return Error{"internal", std::string("cannot take signals: ") + std::strerror(errno)};
  ::sigprocmask(SIG_BLOCK, &taken, &before);
  return std::unique_ptr<TopScreen>(new TopScreen(std::move(signals), before));
}

TopScreen::TopScreen(UniqueFd signals, const sigset_t& before)
    : signals_(std::move(signals)), before_(before), colour_(use_colour() && has_colors()) {
  if (colour_) set_up_colours();
  cbreak();
  noecho();
  nodelay(stdscr, TRUE);
  keypad(stdscr, TRUE);
  set_escdelay(kEscapeDelayMs);
  curs_set(0);
}

TopScreen::~TopScreen() {
  endwin();
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

TopSize TopScreen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

void TopScreen::draw(const std::vector<TopLine>& lines) {
  TopSize now = size();
  if (!is_term_resized(static_cast<int>(now.height), static_cast<int>(now.width))) {
    werase(stdscr);
  } else {
    resizeterm(static_cast<int>(now.height), static_cast<int>(now.width));
    wclear(stdscr);  // what the terminal made of the old screen is anybody's guess
  }
  for (size_t y = 0; y < lines.size(); ++y) {
    wmove(stdscr, static_cast<int>(y), 0);
    for (const TopText& text : lines[y]) {
      wattr_set(stdscr, attribute_of(text.style), colour_ && has_colour(text.style) ? pair_of(text.style) : short{0},
                nullptr);
      waddnstr(stdscr, text.text.data(), static_cast<int>(text.text.size()));
    }
  }
  wattr_set(stdscr, A_NORMAL, 0, nullptr);
  wrefresh(stdscr);
}

TopScreen::Input TopScreen::next_key() {
  int key = wgetch(stdscr);
  if (key == ERR) return {};
  if (key == KEY_UP) return {Input::Kind::key, 'k'};
  if (key == KEY_DOWN) return {Input::Kind::key, 'j'};
  return {Input::Kind::key, key > ' ' && key < 127 ? static_cast<char>(key) : '\0'};
}

TopScreen::Input TopScreen::next_signal() {
  signalfd_siginfo info;
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return {};
  if (info.ssi_signo == SIGWINCH) return {Input::Kind::resized};
  return {Input::Kind::ended, 0, static_cast<int>(info.ssi_signo)};
}

TopScreen::Input TopScreen::wait(std::chrono::steady_clock::time_point deadline) {
  if (Input signal = next_signal(); signal.kind != Input::Kind::nothing) return signal;
  if (Input key = next_key(); key.kind != Input::Kind::nothing) return key;  // ncurses may have read ahead
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  pollfd items[] = {{signals_.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  if (::poll(items, 2, static_cast<int>(left > 0 ? left : 0)) <= 0) return {};
  if (items[0].revents != 0) return next_signal();
  Input key = next_key();
  if (key.kind == Input::Kind::nothing && (items[1].revents & (POLLHUP | POLLERR)) != 0)
    return {Input::Kind::ended, 0, SIGHUP};
  return key;
}

}  // namespace berth::cli
