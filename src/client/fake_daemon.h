// A daemon for tests: serves one connection after another from a thread, with a script of what to send back.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/test_folder.h"
#include "base/unique_fd.h"
#include "wire/control.h"

namespace berth::client {

class FakeDaemon {
 public:
  // `answer` gets the text of each request and gives the packets to send; none closes the connection.
  using Answer = std::function<std::vector<std::string>(const std::string&)>;

  FakeDaemon(const std::string& socket, Answer answer) : answer_(std::move(answer)) {
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, socket.c_str());
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    if (::listen(listener_.get(), 8) != 0) std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  static std::string reply(const std::string& text) {
    return wire::control_packet(wire::MessageType::control_reply, text);
  }
  static std::string event(const std::string& text) {
    return wire::control_packet(wire::MessageType::control_event, text);
  }

 private:
  void serve() {
    for (;;) {
      UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer) return;
      std::string packet(wire::kMaxPacket, '\0');
      ssize_t got;
      while ((got = ::recv(peer.get(), packet.data(), packet.size(), 0)) > 0) {
        auto replies = answer_(packet.substr(sizeof(wire::Header), static_cast<size_t>(got) - sizeof(wire::Header)));
        for (const std::string& one : replies)
          if (::send(peer.get(), one.data(), one.size(), MSG_NOSIGNAL) < 0) break;
        if (replies.empty()) break;
      }
    }
  }

  Answer answer_;
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace berth::client
