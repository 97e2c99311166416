#include "client/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/paths.h"
#include "client/driver_files.h"

namespace berth::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStartPatience{5000};
constexpr milliseconds kRivalPatience{1000};  // ours has ended; another run's daemon may be about to answer

std::string absolute(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path whole = std::filesystem::absolute(path, ignored);
  return whole.empty() ? path : whole.lexically_normal().string();
}

// The environment for berthd, which runs in "/": relative paths in it are made absolute.
std::vector<std::string> daemon_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    std::string text = *entry;
    for (std::string name : {"BERTH_CONFIG=", "BERTH_DRIVER=", "BERTH_SIM_DIR="}) {
      if (text.rfind(name, 0) != 0) continue;
      std::string value = text.substr(name.size());
      if (value.find('/') != std::string::npos) text = name + absolute(value);
    }
    result.push_back(std::move(text));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>* texts) {
  std::vector<char*> result;
  for (std::string& text : *texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

struct DaemonExec {
  const char* path;
  char** argv;
  char** envp;
  int null_fd, log_fd, report_fd;
};

// In the forked child: only async-signal-safe calls. Reports an exec that failed as its errno.
[[noreturn]] void become_daemon(const DaemonExec& exec) {
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  ::dup2(exec.null_fd, 0);
  ::dup2(exec.null_fd, 1);
  ::dup2(exec.log_fd, 2);
  // A daemon must not keep the pipes and locks of the shell that happened to start it.
  int report = exec.report_fd;
  if (report != 3) ::dup3(report, 3, O_CLOEXEC), report = 3;
#ifdef SYS_close_range
  bool closed = ::syscall(SYS_close_range, 4u, ~0u, 0u) == 0;
#else
  bool closed = false;
#endif
  if (!closed)
    for (int fd = 4, last = static_cast<int>(::sysconf(_SC_OPEN_MAX)); fd < last && fd < 65536; ++fd) ::close(fd);
  if (::chdir("/") == 0) ::execve(exec.path, exec.argv, exec.envp);
  int error = errno;
  if (::write(report, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

Error no_place(const std::string& socket, const std::string& why) {
  return {"internal", "cannot start a daemon for the socket " + socket + ": " + why +
                          "; set BERTH_SOCKET to a path in a folder of yours, or XDG_RUNTIME_DIR to another folder"};
}

}  // namespace

std::string last_line_of(const std::string& file, uint64_t from) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  std::streamoff size = in.tellg();
  in.seekg(std::max(static_cast<std::streamoff>(from), size - 4096));
  std::string line, last;
  while (std::getline(in, line))
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  return last.size() > 400 ? last.substr(0, 400) + "..." : last;
}

Result<std::string> own_socket() {
  auto candidates = socket_candidates();
  if (!candidates) return candidates.error();
  return absolute(candidates->back());
}

Result<Connection> connect_daemon() {
  auto candidates = socket_candidates();
  if (!candidates) return candidates.error();
  Error last{"unreachable", "no daemon answers"};
  for (const std::string& socket : *candidates) {
    auto connection = Connection::open(absolute(socket));
    if (connection || connection.error().code != "unreachable") return connection;
    last = connection.error();
  }
  return last;
}

namespace {

// Ends an idle daemon of the user's own and waits until its socket is gone.
bool end_idle_daemon(Connection* connection) {
  auto own = own_socket();
  if (!own || *own != connection->socket() || connection->daemon_uid() != ::getuid()) return false;
  if (!connection->request({{"op", "stop"}})) return false;
  for (auto deadline = steady_clock::now() + kStartPatience; steady_clock::now() < deadline;) {
    auto still = Connection::open(connection->socket());
    if (!still) return still.error().code == "unreachable";
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

// A daemon that still idles with the simulated GPU, or without it, when BERTH_DRIVER has been changed would answer for the
// wrong devices; it makes room for another one. Error `unreachable` if one is to be started.
Result<Connection> connect_suitable_daemon() {
  auto connection = connect_daemon();
  if (!connection) return connection;
  auto status = connection->request({{"op", "status"}});
  if (!status) return status.error().code == "lost" ? connect_daemon() : status.error();
  std::string wanted = driver_choice(), there = text_of(status->value("driver_choice", Json()));
  bool differs = (wanted == "sim" && there.empty()) || (wanted.empty() && there == "sim");
  if (!differs || !status->contains("driver_choice")) return connection;
  if (end_idle_daemon(&*connection)) return Error{"unreachable", "the daemon has made room for another"};
  auto text = [](const std::string& choice) { return choice.empty() ? "without BERTH_DRIVER" : "with BERTH_DRIVER=" + choice; };
  return Error{"no_device", "the daemon at " + connection->socket() + " (process " +
                                std::to_string(connection->daemon_pid()) + ") was started " + text(there) +
                                ", and this was started " + text(wanted) +
                                ": set it alike, end that daemon's jobs, or choose another BERTH_SOCKET"};
}

}  // namespace

Result<pid_t> spawn_daemon(const std::string& socket) {
  // Before anything is made there: a file that can't be filled is of no use.
  if (std::string fault = folder_fault(socket); !fault.empty()) return no_place(socket, fault);
  std::string log = log_file_of(socket);
  UniqueFd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log_fd) return no_place(socket, log + ": " + std::strerror(errno));
  UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  int ends[2];
  if (!null_fd || ::pipe2(ends, O_CLOEXEC) != 0)
    return Error{"internal", std::string("cannot start the daemon: ") + std::strerror(errno)};
  UniqueFd reader(ends[0]), writer(ends[1]);

  std::string path = executable_folder() + "/berthd";
  std::vector<std::string> words{path, "--socket", socket}, environment = daemon_environment();
  std::vector<char*> argv = pointers(&words), envp = pointers(&environment);
  pid_t pid = ::fork();
  if (pid < 0) return Error{"internal", std::string("cannot start the daemon: ") + std::strerror(errno)};
  if (pid == 0)
    become_daemon({path.c_str(), argv.data(), envp.data(), null_fd.get(), log_fd.get(), writer.get()});

  writer.reset();
  int error = 0;
  ssize_t got;
  do got = ::read(reader.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  if (got == 0) return pid;  // closed by a successful exec
  ::waitpid(pid, nullptr, 0);
  return Error{"internal", "cannot start the daemon " + path + ": " + std::strerror(error)};
}

Result<Connection> connect_or_start_daemon(pid_t* started) {
  if (started) *started = 0;
  if (auto choice = check_driver_choice(); !choice) return choice.error();
  auto connection = connect_suitable_daemon();
  if (connection || connection.error().code != "unreachable") return connection;
  auto socket = own_socket();
  if (!socket) return socket.error();
  std::string log = log_file_of(*socket);
  std::error_code none_yet;
  uint64_t log_size = std::filesystem::file_size(log, none_yet);
  if (none_yet) log_size = 0;

  auto pid = spawn_daemon(*socket);
  if (!pid) return pid.error();
  bool alive = true;
  auto deadline = steady_clock::now() + kStartPatience;
  for (milliseconds pause{2}; steady_clock::now() < deadline; pause = std::min(pause * 2, milliseconds(50))) {
    connection = Connection::open(*socket);
    // One that listens may still find that it can't work (a full disk): it is up when it replies.
    if (connection && connection->request({{"op", "status"}})) {
      if (alive && started) *started = *pid;
      return connection;
    }
    if (alive && ::waitpid(*pid, nullptr, WNOHANG) == *pid) {
      alive = false;
      deadline = std::min(deadline, steady_clock::now() + kRivalPatience);
    }
    std::this_thread::sleep_for(pause);
  }
  std::string word = last_line_of(log, log_size);
  if (word.empty()) word = folder_fault(*socket);  // it has filled up meanwhile, so there is no log
  return Error{"internal", std::string("the daemon ") + (alive ? "does not answer at " + *socket : "did not start") +
                               (word.empty() ? "" : ": " + word) + " (log: " + log + ")"};
}

}  // namespace berth::client
