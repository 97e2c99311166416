// Messages between a guest (our library inside a foreign program) and the daemon: fixed structures over a Unix SEQPACKET
// socket, one structure a packet, host byte order. docs/wire-protocol.md tells the conversation.
//
// Rules for both sides: a received packet is copied first and checked with `check_message` before any field is used; a
// packet that fails the check ends the connection. Major versions N and N-1 are served; within a major a structure only
// grows at its end and the sender's `size` says how much of it is there.
// Guest-safe: no allocation, no libstdc++ symbols.
#pragma once
#include <cstddef>
#include <cstdint>

namespace berth::wire {

inline constexpr uint32_t kMagic = 0x48545242;  // "BRTH"
inline constexpr uint16_t kMajor = 1;
inline constexpr uint32_t kMaxDevices = 32;
inline constexpr uint32_t kMaxJobPids = 512;
inline constexpr uint32_t kMaxPacket = 60 * 1024;

enum class MessageType : uint16_t {
  hello = 1,      // guest -> daemon, first packet of a connection
  welcome = 2,    // daemon -> guest, with the descriptor of the daemon page
  refused = 3,    // daemon -> guest, instead of welcome: the guest goes on as if there were no berth
  holdings = 4,   // guest -> daemon, one for each device and kind with bytes, right after a welcome; no reply
  reserve = 5,    // guest -> daemon
  grant = 6,      // daemon -> guest, the reply to reserve
  release = 7,    // guest -> daemon, no reply
  refresh = 8,    // guest -> daemon, no reply: the driver's own use may have changed, read NVML again
  notice = 9,     // guest -> daemon, no reply: something people should see as an event
  mapped = 10,    // guest -> daemon, no reply: the activity page is mapped, it can be sealed and shown to others
  watch = 11,     // daemon -> guest, unasked, sequence 0: another client's activity page, or the end of it
  active = 12,    // guest -> daemon, no reply: the first submission since kGateTell was set
  control_request = 64,  // command -> daemon: a JSON text follows the header (src/wire/control.h)
  control_reply = 65,    // daemon -> command: a part of a JSON text
  control_event = 66,    // daemon -> command, unasked, to connections that asked to follow
};

struct Header {
  uint32_t magic;
  uint16_t major;
  MessageType type;
  uint32_t size;      // bytes of the whole packet, this header included
  uint32_t sequence;  // a reply repeats the request's; control_reply: see src/wire/control.h
};

// What a counted allocation is backed by. Swapping will care; accounting treats all alike.
enum class Kind : uint32_t {
  linear,    // cuMemAlloc and its pitch and legacy forms
  managed,   // counted whole at allocation; resident only where touched
  pool,      // what stream-ordered pools have reserved from the driver
  physical,  // VMM handles (cuMemCreate)
  array,     // arrays and mipmapped arrays
  graph,     // memory nodes of instantiated graphs
  imported,  // of another process: charged to that one, so never part of `used`; NVML may list it here too
  overhead,  // contexts, modules, stacks: learned, then corrected through NVML
  count,
};

struct Uuid { uint8_t bytes[16]; };

enum class Role : uint32_t {
  client = 1,  // has called cuInit
  viewer = 2,  // uses NVML only: sees the job's numbers, holds nothing
};

inline constexpr uint32_t kFeatureActivity = 1;  // wants the descriptor of its activity page with the welcome

struct Hello {
  static constexpr MessageType kType = MessageType::hello;
  Header header;
  Role role;
  uint32_t features;         // kFeature... bits of what the guest knows
  int32_t driver_version;    // cuDriverGetVersion, 0 for a viewer
  uint32_t unknown_symbols;  // names the driver has and our list lacks, or pointers we could not place
  uint32_t missing_symbols;  // names our list has and the driver lacks
  uint32_t device_count;     // the guest's ordinals, in the guest's order
  Uuid devices[kMaxDevices];
  char shim_version[32];     // NUL-terminated
};

struct Welcome {
  static constexpr MessageType kType = MessageType::welcome;
  Header header;
  uint64_t client_id;
  uint32_t page_size;  // bytes to map of the descriptor that comes with this packet; with kFeatureActivity a second
                       // descriptor comes: the activity page (sizeof(ActivityPage)), to be mapped for writing
  uint32_t restarted;  // 1: the daemon is collecting holdings after a restart
};

enum class RefusedWhy : uint32_t {
  version = 1,      // majors don't fit
  unmanaged = 2,    // no job for this process and no default job for its user
  no_device = 3,    // none of the guest's devices is one of the daemon's (another driver, another machine)
  limit = 4,        // too many clients
  malformed = 5,
};
struct Refused {
  static constexpr MessageType kType = MessageType::refused;
  Header header;
  RefusedWhy why;
  uint32_t daemon_major;
};

struct Holdings {
  static constexpr MessageType kType = MessageType::holdings;
  Header header;
  uint32_t device;  // the guest's ordinal
  Kind kind;
  uint64_t bytes;
  uint32_t last;    // 1: that was all
  uint32_t pad;
};

enum class Force : uint32_t {
  none = 0,
  first_context = 1,  // granted above the quota if the job has no other overhead: a small quota must still start
  taken = 2,          // the driver has taken it already: goes on the account whatever the quota says
};
struct Reserve {
  static constexpr MessageType kType = MessageType::reserve;
  Header header;
  uint32_t device;
  Kind kind;
  uint64_t bytes;  // for Kind::overhead 0 means "one context; you know what it costs"
  Force force;
  uint32_t pad;
};

enum class GrantStatus : uint32_t {
  granted = 0,
  over_quota = 1,   // the job's quota
  device_full = 2,  // the device, or what others were promised
  unavailable = 3,  // contexts only: the device is prohibited, or exclusive and another process's
};
struct Grant {
  static constexpr MessageType kType = MessageType::grant;
  Header header;
  GrantStatus status;
  uint32_t pad;
  uint64_t bytes;      // what was added to the client's account (0 unless granted)
  uint64_t available;  // what the job could still have been granted
};

inline constexpr uint64_t kAllBytes = ~0ull;
struct Release {
  static constexpr MessageType kType = MessageType::release;
  Header header;
  uint32_t device;
  Kind kind;
  uint64_t bytes;  // at most what is on the account is released; kAllBytes: all of the kind
};

struct Refresh {
  static constexpr MessageType kType = MessageType::refresh;
  Header header;
  uint32_t device;
  uint32_t pad;
};

enum class NoticeCode : uint32_t {
  partly_covered = 1,   // the driver handed out a function that we don't know: value = how many so far
  driver_full = 2,      // the driver had no memory under a valid grant: value = bytes
  over_quota = 3,       // refused without asking, the daemon being away: value = bytes
};
struct Notice {
  static constexpr MessageType kType = MessageType::notice;
  Header header;
  NoticeCode code;
  uint32_t device;
  uint64_t value;
  char text[64];  // NUL-terminated, a name
};

struct Mapped {
  static constexpr MessageType kType = MessageType::mapped;
  Header header;
};

enum class Relation : uint32_t {
  none = 0,    // forget the client
  higher = 1,  // its work comes first
  peer = 2,    // of the same job: its kernels may be waiting for ours
};
// With the read-only descriptor of the client's activity page, unless the relation is none. With client 0 it only asks the
// guest to look at its own page again: the gate has begun to hold.
struct Watch {
  static constexpr MessageType kType = MessageType::watch;
  Header header;
  uint64_t client_id;
  Relation relation;
  uint32_t pad;
  int8_t devices[kMaxDevices];  // that client's ordinal -> this guest's, -1: not one of this guest's
};

struct Active {
  static constexpr MessageType kType = MessageType::active;
  Header header;
};

// True if `data` is a whole, well-formed packet of message type T of a major that we serve.
template <class T>
inline bool check_message(const void* data, size_t size) {
  if (size < sizeof(Header)) return false;
  Header header;
  __builtin_memcpy(&header, data, sizeof header);
  return header.magic == kMagic && header.major == kMajor && header.type == T::kType && header.size == size &&
         size >= sizeof(T);
}

template <class T>
inline T make_message(uint32_t sequence = 0) {
  T message;
  __builtin_memset(&message, 0, sizeof message);
  message.header = Header{kMagic, kMajor, T::kType, sizeof(T), sequence};
  return message;
}

}  // namespace berth::wire
