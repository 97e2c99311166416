// Requests of commands. An input is a row of JSON texts, one a line.
#include "daemon/fuzz_daemon.h"
#include "wire/control.h"

using namespace berth;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* daemon = new berth::daemon::FuzzedDaemon;
  UniqueFd fd = daemon->connect();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() <= wire::kMaxControlPiece)
      daemon->send(fd, wire::control_packet(wire::MessageType::control_request, line));
  }
  fd.reset();
  daemon->turn();
  return 0;
}
