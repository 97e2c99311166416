// Requests of commands. An input is a row of JSON texts, one a line.
#include <nlohmann/json.hpp>

#include "daemon/fuzz_daemon.h"
#include "wire/control.h"

using namespace berth;

namespace {

using Json = nlohmann::json;

// Whatever processes a made-up job or cgroup may have on this machine, none of them gets a signal.
std::string harmless(std::string_view line) {
  Json request = Json::parse(line, nullptr, false);
  if (!request.is_object() || request.value("op", Json()) != "kill") return std::string(line);
  Json& signal = request["signal"];
  bool refused = signal.is_number() ? signal < 0 || signal > 64 : !signal.is_null();
  if (!refused) signal = 0;
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* daemon = new berth::daemon::FuzzedDaemon;
  UniqueFd fd = daemon->connect();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() <= wire::kMaxControlPiece)
      daemon->send(fd, wire::control_packet(wire::MessageType::control_request, harmless(line)));
  }
  fd.reset();
  daemon->turn();
  return 0;
}
