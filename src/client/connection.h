// A conversation of a command with the daemon: JSON requests and replies, and events that come unasked
// (docs/wire-protocol.md, "Commands").
//
// One thread at a time. Error codes are the daemon's own, and from here: `unreachable` (nothing answers at the socket),
// `lost` (the daemon ended the conversation), `timeout` (no reply in time), `version` (it speaks another major, or nothing that makes sense),
// `internal`. After any of lost, timeout and version the connection is of no further use; open a new one.
#pragma once
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/control.h"

namespace berth::client {

using Json = nlohmann::json;

inline constexpr std::chrono::milliseconds kUsualTimeout{15000};
inline constexpr std::chrono::milliseconds kForEver{-1};

class Connection {
 public:
  using EventHandler = std::function<void(const Json&)>;

  // Connects to the daemon at `socket`. Doesn't start one.
  static Result<Connection> open(const std::string& socket);

  // Sends one request and waits for its reply; an {"error": ...} reply becomes the Error. Events that come before the
  // reply go to the handler.
  Result<Json> request(const Json& request, std::chrono::milliseconds timeout = kUsualTimeout);

  // Who gets the events; called from inside request() and read_events() only. Must not call back into this object.
  void on_event(EventHandler handler) { on_event_ = std::move(handler); }

  // Hands all events that have arrived to the handler, without waiting. Call it when fd() is readable.
  Status read_events();

  // Waits for at least one packet and hands its event on.
  Status wait_event(std::chrono::milliseconds timeout = kForEver);

  int fd() const { return fd_.get(); }
  const std::string& socket() const { return socket_; }
  pid_t daemon_pid() const { return daemon_pid_; }  // by SO_PEERCRED; 0 if it is out of our sight
  uid_t daemon_uid() const { return daemon_uid_; }

 private:
  Connection(UniqueFd fd, std::string socket);
  Result<wire::ControlPacket> receive(std::chrono::milliseconds timeout);
  Status dispatch(std::string_view text);
  Error lost(const std::string& why) const;
  Error no_daemon() const;  // what it sends makes no sense

  UniqueFd fd_;
  std::string socket_;
  std::string packet_;  // the last one received; ControlPacket::text points into it
  pid_t daemon_pid_ = 0;
  uid_t daemon_uid_ = 0;
  bool heard_ = false;  // something that makes sense has come from the other side
  EventHandler on_event_;
};

}  // namespace berth::client
