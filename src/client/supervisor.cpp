#include "client/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "client/daemon.h"
#include "client/job.h"
#include "client/process_tree.h"

namespace berth::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryEvery{20}, kTrySeldom{500};
constexpr milliseconds kStartEvery{1000};     // a daemon that dies at once is started once a second, no more often
constexpr milliseconds kComplainAfter{6000};
constexpr milliseconds kReplyPatience{2000};  // signals wait meanwhile
constexpr milliseconds kEndPatience{2000};    // between SIGTERM and SIGKILL

// The program has its own copies of the streams and of whatever else it inherited. Ours would keep pipes open that it
// closes, so they go, all but stderr and `keep`.
void let_go_of_streams(std::initializer_list<int> keep) {
  UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null_fd) ::dup2(null_fd.get(), 0), ::dup2(null_fd.get(), 1);
  DIR* folder = ::opendir("/proc/self/fd");
  if (!folder) return;
  std::vector<int> others;
  while (dirent* entry = ::readdir(folder)) {
    int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != ::dirfd(folder) && fd != null_fd.get() && std::find(keep.begin(), keep.end(), fd) == keep.end())
      others.push_back(fd);
  }
  ::closedir(folder);
  for (int fd : others) ::close(fd);
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

Supervisor::Supervisor(Connection connection, SignalIntake signals, SupervisedJob job)
    : connection_(std::move(connection)), signals_(std::move(signals)), job_(std::move(job)),
      socket_(connection_->socket()) {
  connection_->on_event([this](const Json& event) { hear(event); });
}

int Supervisor::run() {
  let_go_of_streams({connection_->fd(), signals_.fd()});
  while (!all_ended()) {
    wait_for_something();
    take_signals();
    if (connection_) {
      if (!connection_->read_events()) lose();
    }
    if (!connection_ && Clock::now() >= try_at_) reconnect();
    if (ending_ && Clock::now() >= kill_at_) end_job();
  }
  if (connection_) finish(&*connection_, job_.job, exit_code());
  return exit_code();
}

int Supervisor::exit_code() const {
  if (ending_ || !root_status_) return kExitBerth;
  return WIFEXITED(*root_status_) ? WEXITSTATUS(*root_status_) : 128 + WTERMSIG(*root_status_);
}

void Supervisor::wait_for_something() {
  Clock::time_point wake = Clock::time_point::max();
  if (!connection_) wake = try_at_;
  if (ending_) wake = std::min(wake, kill_at_);
  int timeout = -1;
  if (wake != Clock::time_point::max()) {
    auto rest = std::chrono::ceil<milliseconds>(wake - Clock::now()).count();
    timeout = rest > 0 ? static_cast<int>(rest) : 0;
  }
  pollfd items[2] = {{signals_.fd(), POLLIN, 0}, {connection_ ? connection_->fd() : -1, POLLIN, 0}};
  ::poll(items, 2, timeout);
}

void Supervisor::take_signals() {
  while (auto received = signals_.next()) {
    switch (received->number) {
      case SIGCHLD:
        break;  // a signal may stand for several children: reap() asks for all
      case SIGTSTP:
        pass_on(*received);
        signals_.stop_self();
        break;
      default:
        pass_on(*received);
    }
  }
  reap();
}

void Supervisor::pass_on(const SignalIntake::Received& received) {
  // The terminal's signals have reached the program already. One from the program or from below it was meant for its
  // whole group or for its parent; it must not come back to it.
  if (received.from_kernel || received.sender == ::getpid()) return;
  if (received.sender > 0 && is_below_us(received.sender)) return;
  std::vector<pid_t> targets{job_.root};
  if (root_status_) targets = own_children(job_.daemon);
  for (pid_t target : targets) {
    if (received.code == SI_QUEUE) {
      sigval value{};
      value.sival_ptr = reinterpret_cast<void*>(received.value);
      ::sigqueue(target, received.number, value);
    } else {
      ::kill(target, received.number);
    }
  }
}

void Supervisor::reap() {
  for (;;) {
    int status;
    pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == ECHILD) no_children_ = true;
    if (pid <= 0) return;
    if (pid == job_.root) root_status_ = status;
    if (pid == job_.daemon) job_.daemon = 0;
  }
}

bool Supervisor::all_ended() {
  if (!root_status_) return no_children_;
  return no_children_ || (job_.daemon && own_children(job_.daemon).empty());
}

void Supervisor::hear(const Json& event) {
  std::string what = event.value("event", "");
  if (what == "message") {
    job_.say(event.value("text", ""));
  } else if (what == "end_job" && !ending_) {
    job_.say(event.value("reason", "the daemon ends this job"));
    ending_ = true;
    for (pid_t process : processes_below(job_.daemon)) ::kill(process, SIGTERM);
    kill_at_ = Clock::now() + kEndPatience;
  }
}

void Supervisor::end_job() {
  for (pid_t process : processes_below(job_.daemon)) ::kill(process, SIGKILL);
  kill_at_ = Clock::now() + milliseconds(100);  // one that has just been forked
}

void Supervisor::lose() {
  connection_.reset();
  lost_at_ = try_at_ = Clock::now();
}

void Supervisor::reconnect() {
  auto now = Clock::now();
  auto connection = Connection::open(socket_);
  if (connection) {
    connection->on_event([this](const Json& event) { hear(event); });
    auto done = start(&*connection, job_.job, job_.root, kReplyPatience);
    if (done) {
      connection_ = std::move(*connection);
      complained_ = false;
      return;
    }
    if (done.error().code != "lost" && done.error().code != "timeout") {
      if (!complained_) job_.say("the daemon was started again and does not take this job back: " + done.error().message);
      complained_ = true;
      try_at_ = Clock::time_point::max();  // nothing more to expect from it
      return;
    }
  } else if (job_.own_daemon && job_.daemon == 0 && now >= start_at_) {
    start_at_ = now + kStartEvery;
    if (auto pid = spawn_daemon(socket_)) job_.daemon = *pid;
  }
  if (!complained_ && now - lost_at_ > kComplainAfter) {
    complained_ = true;
    job_.say("the daemon at " + socket_ + " has gone" + (job_.own_daemon ? " and cannot be started again" : "") +
             "; the program runs on, without new device memory, and this goes on trying");
  }
  try_at_ = Clock::now() + (complained_ ? kTrySeldom : kTryEvery);
}

}  // namespace berth::client
