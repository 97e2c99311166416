// The terminal of `berth top`: shows lines, gives keys, and leaves the terminal as it was.
#pragma once
#include <signal.h>

#include <chrono>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/top_view.h"

namespace berth::cli {

// One object a process, made and used by one thread while it has no other. From its construction to its end the signals
// that end a command or tell of a new size are taken: they come from wait().
class TopScreen {
 public:
  // Error `usage` where the standard streams are no terminal, or one on which no cursor can be placed.
  static Result<std::unique_ptr<TopScreen>> open();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  TopSize size() const;
  void draw(const std::vector<TopLine>& lines);

  struct Input {
    enum class Kind { nothing, key, resized, ended } kind = Kind::nothing;
    char key = 0;    // arrows are 'k' and 'j'; keys of no meaning to us are 0
    int signal = 0;  // that ends the command; SIGHUP too when the terminal has gone
  };
  // The next thing that happens; nothing if `deadline` passes first, or if only the screen has to be drawn anew.
  Input wait(std::chrono::steady_clock::time_point deadline);

 private:
  TopScreen(UniqueFd signals, const sigset_t& before);
  Input next_key();
  Input next_signal();

  UniqueFd signals_;
  sigset_t before_;
  bool colour_;
};

}  // namespace berth::cli
