// Packets of guests. An input is a row of packets: a byte for the kind (0: raw, else a message type whose header is
// made right), a byte for the length in units of 4, and the bytes. The very first byte chooses: 1 a hello first, 2 a
// job with virtual devices.
#include <algorithm>
#include <string>

#include "daemon/fuzz_daemon.h"
#include "wire/guest_protocol.h"

using namespace berth;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* plain = new berth::daemon::FuzzedDaemon;
  static auto* with_virtual_devices = new berth::daemon::FuzzedDaemon(3);
  auto* daemon = size > 0 && (data[0] & 2) ? with_virtual_devices : plain;
  UniqueFd fd = daemon->connect();
  auto hello = wire::make_message<wire::Hello>();
  hello.role = wire::Role::client;
  hello.device_count = 1;
  for (size_t i = 0; i < 16; ++i) hello.devices[0].bytes[i] = static_cast<uint8_t>(i * 0x11);
  if (size > 0 && (data[0] & 1)) daemon->send(fd, {reinterpret_cast<const char*>(&hello), sizeof hello});
  for (size_t at = 1; at + 2 <= size;) {
    uint8_t kind = data[at];
    size_t length = std::min<size_t>(data[at + 1] * size_t{4}, size - at - 2);
    std::string packet(reinterpret_cast<const char*>(data + at + 2), length);
    at += 2 + length;
    if (kind != 0) {
      wire::Header header{wire::kMagic, wire::kMajor, static_cast<wire::MessageType>(kind % 13), 0, 1};
      header.size = static_cast<uint32_t>(sizeof header + packet.size());
      packet.insert(0, reinterpret_cast<const char*>(&header), sizeof header);
    }
    daemon->send(fd, packet);
  }
  fd.reset();
  daemon->turn();
  return 0;
}
