// CUDA_VISIBLE_DEVICES of a process that has virtual devices: which of them it shows, in which order. Read as the driver reads
// it for cards (CUDA Programming Guide, environment variables): indices, UUIDs or the beginnings of UUIDs, up to the first entry
// that is none; the same one twice shows none at all. Pure; the caller's arrays.
#pragma once
#include <cstdint>

#include "wire/guest_protocol.h"

namespace berth::shim {

inline constexpr int kUuidText = 41;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and its NUL

void format_uuid(const wire::Uuid& uuid, char (&text)[kUuidText]);

// `list`: the variable's text, or null when it is not set: all of `uuids` then. Fills `places` with indices into `uuids` and
// returns how many.
uint32_t visible_devices(const char* list, const wire::Uuid* uuids, uint32_t count, uint8_t* places);

}  // namespace berth::shim
