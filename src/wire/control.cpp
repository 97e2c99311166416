#include "wire/control.h"

#include <cstring>

namespace berth::wire {

std::string control_packet(MessageType type, std::string_view text, uint32_t pieces_left) {
  Header header{kMagic, kMajor, type, static_cast<uint32_t>(sizeof(Header) + text.size()), pieces_left};
  std::string packet(sizeof header + text.size(), '\0');
  std::memcpy(packet.data(), &header, sizeof header);
  std::memcpy(packet.data() + sizeof header, text.data(), text.size());
  return packet;
}

std::vector<std::string> control_reply_packets(std::string_view text) {
  size_t pieces = text.empty() ? 1 : (text.size() + kMaxControlPiece - 1) / kMaxControlPiece;
  std::vector<std::string> packets;
  packets.reserve(pieces);
  for (size_t i = 0; i < pieces; ++i)
    packets.push_back(control_packet(MessageType::control_reply, text.substr(i * kMaxControlPiece, kMaxControlPiece),
                                     static_cast<uint32_t>(pieces - 1 - i)));
  return packets;
}

bool parse_control_packet(std::string_view packet, ControlPacket* out) {
  Header header;
  if (packet.size() < sizeof header) return false;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic != kMagic || header.major != kMajor || header.size != packet.size()) return false;
  if (header.type != MessageType::control_request && header.type != MessageType::control_reply &&
      header.type != MessageType::control_event)
    return false;
  *out = {header.type, header.sequence, packet.substr(sizeof header)};
  return true;
}

}  // namespace berth::wire
