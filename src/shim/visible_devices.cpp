#include "shim/visible_devices.h"

namespace berth::shim {
namespace {

// One entry of the list, without blanks around it.
struct Entry {
  const char* text;
  int length;
};

int place_of(Entry entry, const wire::Uuid* uuids, uint32_t count) {
  if (entry.length > 4 && __builtin_memcmp(entry.text, "GPU-", 4) == 0) {
    int found = -1;
    for (uint32_t i = 0; i < count; ++i) {
      char text[kUuidText];
      format_uuid(uuids[i], text);
      if (entry.length >= kUuidText || __builtin_memcmp(entry.text, text, static_cast<size_t>(entry.length)) != 0) continue;
      if (found >= 0) return -1;  // the beginning of two
      found = static_cast<int>(i);
    }
    return found;
  }
  int index = 0;
  for (int i = 0; i < entry.length; ++i) {
    if (entry.text[i] < '0' || entry.text[i] > '9' || index > 9999) return -1;
    index = index * 10 + (entry.text[i] - '0');
  }
  return entry.length > 0 && index < static_cast<int>(count) ? index : -1;
}

}  // namespace

void format_uuid(const wire::Uuid& uuid, char (&text)[kUuidText]) {
  static constexpr char kDigits[] = "0123456789abcdef";
  __builtin_memcpy(text, "GPU", 3);
  char* out = text + 3;
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    *out++ = kDigits[uuid.bytes[i] >> 4];
    *out++ = kDigits[uuid.bytes[i] & 15];
  }
  *out = '\0';
}

uint32_t visible_devices(const char* list, const wire::Uuid* uuids, uint32_t count, uint8_t* places) {
  uint32_t shown = 0;
  if (!list) {
    for (; shown < count; ++shown) places[shown] = static_cast<uint8_t>(shown);
    return shown;
  }
  for (const char* at = list; *at;) {
    const char* end = at;
    while (*end && *end != ',') ++end;
    const char *first = at, *last = end;
    while (first < last && *first == ' ') ++first;
    while (first < last && last[-1] == ' ') --last;
    int place = place_of({first, static_cast<int>(last - first)}, uuids, count);
    if (place < 0) break;
    for (uint32_t i = 0; i < shown; ++i)
      if (places[i] == place) return 0;
    places[shown++] = static_cast<uint8_t>(place);
    at = *end ? end + 1 : end;
  }
  return shown;
}

}  // namespace berth::shim
