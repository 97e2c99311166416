#include "client/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace berth::client {
namespace {

struct Name {
  int number;
  const char* text;
};
constexpr Name kNames[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},     {SIGQUIT, "QUIT"},   {SIGILL, "ILL"},   {SIGTRAP, "TRAP"},     {SIGABRT, "ABRT"},
    {SIGBUS, "BUS"},   {SIGFPE, "FPE"},     {SIGKILL, "KILL"},   {SIGUSR1, "USR1"}, {SIGSEGV, "SEGV"},     {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},   {SIGTERM, "TERM"},   {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"},     {SIGSTOP, "STOP"},
    {SIGTSTP, "TSTP"}, {SIGTTIN, "TTIN"},   {SIGTTOU, "TTOU"},   {SIGURG, "URG"},   {SIGXCPU, "XCPU"},     {SIGXFSZ, "XFSZ"},
    {SIGPROF, "PROF"}, {SIGVTALRM, "VTALRM"}, {SIGWINCH, "WINCH"}, {SIGIO, "IO"},   {SIGPWR, "PWR"},       {SIGSYS, "SYS"},
    {SIGABRT, "IOT"},  {SIGIO, "POLL"},     {SIGCHLD, "CLD"},
};

// Left alone: raised by the process's own faults, or by job control, whose default is right for us too.
constexpr int kNotTaken[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGTTIN, SIGTTOU};

std::optional<int> number_in(std::string_view text, int lowest, int highest) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int> parse_signal(std::string_view text) {
  if (auto number = number_in(text, 1, SIGRTMAX)) return number;
  std::string name;
  for (char c : text) name += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (name.rfind("SIG", 0) == 0) name.erase(0, 3);
  for (const Name& known : kNames)
    if (name == known.text) return known.number;
  int span = SIGRTMAX - SIGRTMIN;
  if (name == "RTMIN") return SIGRTMIN;
  if (name == "RTMAX") return SIGRTMAX;
  if (name.rfind("RTMIN+", 0) == 0)
    if (auto offset = number_in(std::string_view(name).substr(6), 0, span)) return SIGRTMIN + *offset;
  if (name.rfind("RTMAX-", 0) == 0)
    if (auto offset = number_in(std::string_view(name).substr(6), 0, span)) return SIGRTMAX - *offset;
  return std::nullopt;
}

std::string signal_name(int number) {
  for (const Name& known : kNames)
    if (number == known.number) return std::string("SIG") + known.text;
  return "signal " + std::to_string(number);
}

Result<SignalIntake> SignalIntake::take() {
  SignalIntake intake;
  sigset_t taken;
  sigfillset(&taken);
  for (int number : kNotTaken) sigdelset(&taken, number);
  // Where SIGCHLD is ignored, exit codes are lost; the program gets the setting back.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &usual, &intake.child_before_);
  ::sigprocmask(SIG_BLOCK, &taken, &intake.before_);
  intake.fd_.reset(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!intake.fd_) {
    Error error{"internal", std::string("cannot receive signals: ") + std::strerror(errno)};
    intake.restore();
    return error;
  }
  return intake;
}

std::optional<SignalIntake::Received> SignalIntake::next() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return Received{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL, static_cast<pid_t>(info.ssi_pid),
                  info.ssi_code, info.ssi_ptr};
}

void SignalIntake::restore() const {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void SignalIntake::stop_self() const {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here, and goes on here after SIGCONT
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace berth::client
