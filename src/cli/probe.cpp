#include "cli/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/signals.h"

namespace berth::cli {
namespace {

using Clock = std::chrono::steady_clock;

// All that comes from `fd` until it is closed; false if that takes too long.
bool read_all(int fd, Clock::time_point deadline, std::string* text) {
  for (;;) {
    auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd item{fd, POLLIN, 0};
    int ready = ::poll(&item, 1, rest > 0 ? static_cast<int>(rest) : 0);
    if (ready == 0) return false;
    if (ready < 0) continue;
    char piece[4096];
    ssize_t got = ::read(fd, piece, sizeof piece);
    if (got <= 0) return true;
    text->append(piece, static_cast<size_t>(got));
  }
}

}  // namespace

Result<Child> Child::fork(const std::function<int()>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error{"internal", std::string("cannot make a pipe: ") + std::strerror(errno)};
  UniqueFd reader(ends[0]), writer(ends[1]);
  pid_t pid = ::fork();
  if (pid < 0) return Error{"internal", std::string("cannot start a process: ") + std::strerror(errno)};
  if (pid == 0) {
    ::setpgid(0, 0);
    int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null_fd, 0);
    ::dup2(writer.get(), 1);
    ::dup2(null_fd, 2);
    ::_exit(body());
  }
  ::setpgid(pid, pid);
  return Child(pid, std::move(reader));
}

Result<Child> Child::execute(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                             bool errors) {
  return fork([&] {
    if (errors) ::dup2(1, 2);
    for (const std::string& entry : environment) {
      size_t equals = entry.find('=');
      ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    return 127;
  });
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<std::string> Child::output(std::chrono::seconds patience, int* status) {
  std::string text;
  bool whole = read_all(reader_.get(), Clock::now() + patience, &text);
  if (!whole) ::kill(-pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, 0), status, 0);
  if (!whole) return Error{"timeout", "it took longer than " + std::to_string(patience.count()) + " s"};
  return text;
}

Result<std::string> probe(const std::function<std::string()>& work, std::chrono::seconds patience) {
  auto child = Child::fork([&] {
    std::string result = work();
    for (size_t at = 0; at < result.size();) {
      ssize_t written = ::write(1, result.data() + at, result.size() - at);
      if (written <= 0) return 1;
      at += static_cast<size_t>(written);
    }
    return 0;
  });
  if (!child) return child.error();
  int status = 0;
  auto text = child->output(patience, &status);
  if (text && WIFSIGNALED(status)) return Error{"internal", "it ended by " + client::signal_name(WTERMSIG(status))};
  return text;
}

}  // namespace berth::cli
