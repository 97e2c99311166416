#include "client/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/paths.h"

namespace berth::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string errno_text() { return std::strerror(errno); }

Error cannot_connect(const std::string& socket, int error) {
  struct stat info;
  bool foreign = error == ECONNREFUSED && ::stat(socket.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode);
  if (foreign || error == EPROTOTYPE || error == ENOTSOCK)
    return {"internal", socket + " is not berth's socket; remove it, or set BERTH_SOCKET to another path"};
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED: {  // a stale socket: its daemon is gone
      std::string fault = folder_fault(socket);
      return {"unreachable", "no daemon answers at " + socket +
                                 (fault.empty() ? "; berth run starts one, and so does berth daemon"
                                                : ", and none can be started there: " + fault)};
    }
    case EACCES:
    case EPERM:
      return {"unreachable", "you may not use the daemon at " + socket};
    case EAGAIN:
      return {"timeout", "the daemon at " + socket + " does not answer; is it stopped?"};
    default:
      return {"unreachable", "cannot connect to " + socket + ": " + std::strerror(error)};
  }
}

// Waits until `fd` is readable. False if `deadline` passed first (none: for ever).
bool wait_readable(int fd, std::optional<steady_clock::time_point> deadline) {
  for (;;) {
    int left = -1;
    if (deadline) {
      auto rest = std::chrono::duration_cast<milliseconds>(*deadline - steady_clock::now()).count();
      left = static_cast<int>(rest > 0 ? rest : 0);
    }
    pollfd item{fd, POLLIN, 0};
    int ready = ::poll(&item, 1, left);
    if (ready > 0) return true;
    if (ready == 0 && left >= 0) return false;
  }
}

// Another berth, another protocol? Then the header still tells.
std::optional<uint16_t> foreign_major(std::string_view packet) {
  wire::Header header;
  if (packet.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic != wire::kMagic || header.major == wire::kMajor) return std::nullopt;
  return header.major;
}

}  // namespace

Connection::Connection(UniqueFd fd, std::string socket) : fd_(std::move(fd)), socket_(std::move(socket)) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
    daemon_pid_ = peer.pid;
    daemon_uid_ = peer.uid;
  }
}

Result<Connection> Connection::open(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path)
    return Error{"internal", "the socket path has " + std::to_string(socket.size()) + " characters and " +
                              std::to_string(sizeof address.sun_path - 1) +
                              " fit; set BERTH_SOCKET to a shorter one: " + socket};
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Error{"internal", "cannot make a socket: " + errno_text()};
  timeval patience{5, 0};  // a stopped daemon with a full backlog
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return cannot_connect(socket, errno);
  return Connection(std::move(fd), socket);
}

Error Connection::lost(const std::string& why) const {
  std::string daemon = daemon_pid_ > 0 ? " (pid " + std::to_string(daemon_pid_) + ")" : "";
  if (!heard_)
    return {"lost", "the daemon" + daemon + " at " + socket_ + " ended the conversation without a reply" + why +
                        "; if it is of another version, end it and try again"};
  return {"lost", "the daemon" + daemon + " at " + socket_ + " has gone" + why};
}

Error Connection::no_daemon() const {
  std::string process = daemon_pid_ > 0 ? " (pid " + std::to_string(daemon_pid_) + ")" : "";
  return {"version", "what answers at " + socket_ + process +
                         " is no berth daemon, or one of another version: end it, or set BERTH_SOCKET to another path"};
}

Result<wire::ControlPacket> Connection::receive(milliseconds timeout) {
  std::optional<steady_clock::time_point> deadline;
  if (timeout.count() >= 0) deadline = steady_clock::now() + timeout;
  if (!wait_readable(fd_.get(), deadline))
    return Error{"timeout", "the daemon at " + socket_ + " does not answer; is it stopped?"};
  packet_.resize(wire::kMaxPacket);
  ssize_t got;
  do got = ::recv(fd_.get(), packet_.data(), packet_.size(), MSG_TRUNC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return lost(": " + errno_text());
  if (got == 0) return lost("");
  if (static_cast<size_t>(got) > packet_.size()) return no_daemon();
  packet_.resize(static_cast<size_t>(got));
  wire::ControlPacket packet;
  if (!wire::parse_control_packet(packet_, &packet)) {
    if (auto major = foreign_major(packet_))
      return Error{"version", "the daemon at " + socket_ + " speaks protocol " + std::to_string(*major) +
                                  " and this command " + std::to_string(wire::kMajor) + "; end the daemon (pid " +
                                  std::to_string(daemon_pid_) + ") or use its own commands"};
    return no_daemon();
  }
  heard_ = true;
  return packet;
}

Status Connection::dispatch(std::string_view text) {
  Json event = Json::parse(text, nullptr, false);
  if (event.is_discarded()) return no_daemon();
  if (on_event_) on_event_(event);
  return Ok{};
}

Result<Json> Connection::request(const Json& request, milliseconds timeout) {
  std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > wire::kMaxControlPiece)
    return Error{"usage", "the command line is too long to be told to the daemon (" + std::to_string(text.size()) +
                              " bytes); put it into a script"};
  std::string packet = wire::control_packet(wire::MessageType::control_request, text);
  if (::send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) return lost(": " + errno_text());

  std::string whole;
  for (;;) {
    auto piece = receive(timeout);
    if (!piece) return piece.error();
    if (piece->type == wire::MessageType::control_event) {
      if (auto done = dispatch(piece->text); !done) return done.error();
      continue;
    }
    if (piece->type != wire::MessageType::control_reply) return no_daemon();
    whole += piece->text;
    if (whole.size() > wire::kMaxControlText) return lost(": it sent too long a reply");
    if (piece->pieces_left == 0) break;
  }
  Json reply = Json::parse(whole, nullptr, false);
  if (!reply.is_object()) return no_daemon();
  if (auto error = reply.find("error"); error != reply.end() && error->is_object())
    return Error{error->value("code", "internal"), error->value("message", "the daemon gave no reason")};
  return reply;
}

Status Connection::wait_event(milliseconds timeout) {
  auto packet = receive(timeout);
  if (!packet) return packet.error();
  if (packet->type != wire::MessageType::control_event) return Ok{};  // a reply that came after its time
  return dispatch(packet->text);
}

Status Connection::read_events() {
  for (;;) {
    pollfd item{fd_.get(), POLLIN, 0};
    if (::poll(&item, 1, 0) <= 0) return Ok{};
    if (auto done = wait_event(milliseconds(0)); !done) return done;
  }
}

}  // namespace berth::client
