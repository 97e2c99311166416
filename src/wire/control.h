// Requests of commands (and later of the SDK and plugins) to the daemon: JSON texts in control_request packets on the same
// socket as the guests'. docs/wire-protocol.md lists the operations. Host side only.
//
// A request fits one packet. A reply may take several: each control_reply carries a piece, and header.sequence is the
// number of pieces still to come, 0 in the last. Unasked control_event packets carry one whole JSON object each and may
// come between, never inside, replies.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "wire/guest_protocol.h"

namespace berth::wire {

inline constexpr size_t kMaxControlPiece = kMaxPacket - sizeof(Header);
inline constexpr size_t kMaxControlText = 16u << 20;  // a longer reply is a fault of the sender

// One packet around `text`, which must not be longer than kMaxControlPiece.
std::string control_packet(MessageType type, std::string_view text, uint32_t pieces_left = 0);

// `text` as the packets of one reply.
std::vector<std::string> control_reply_packets(std::string_view text);

struct ControlPacket {
  MessageType type;
  uint32_t pieces_left;
  std::string_view text;  // points into the packet
};
// False if `packet` is not a whole control packet of our major.
bool parse_control_packet(std::string_view packet, ControlPacket* out);

}  // namespace berth::wire
