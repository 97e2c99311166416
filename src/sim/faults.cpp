#include "sim/faults.h"

#include <time.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sim/settings.h"

namespace berth::sim {
namespace {

struct Fault {
  std::string name;
  int result = 0;
  int64_t delay_ms = 0;
  uint64_t first = 1, last = UINT64_MAX;  // calls it applies to
};

struct Faults {
  std::vector<Fault> list;
  std::vector<std::string> hidden;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    size_t end = text.find(separator, at);
    if (end == std::string::npos) end = text.size();
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Faults read_faults() {
  Faults faults;
  for (const std::string& item : split(settings().faults, ',')) {
    constexpr std::string_view kMissing = "symbols=missing:";
    if (item.starts_with(kMissing)) {
      faults.hidden = split(item.substr(kMissing.size()), ';');
      continue;
    }
    size_t colon = item.find(':');
    if (colon == std::string::npos) continue;
    Fault fault;
    fault.name = item.substr(0, colon);
    std::string action = item.substr(colon + 1);
    if (size_t at = action.find('@'); at != std::string::npos) {
      fault.first = std::strtoull(action.c_str() + at + 1, nullptr, 10);
      if (action.back() != '+') fault.last = fault.first;
    }
    if (action.starts_with("delay="))
      fault.delay_ms = std::strtoll(action.c_str() + 6, nullptr, 10);
    else
      fault.result = static_cast<int>(std::strtol(action.c_str(), nullptr, 10));
    faults.list.push_back(fault);
  }
  return faults;
}

const Faults& faults() {
  static const Faults* const the_faults = new Faults(read_faults());
  return *the_faults;
}

std::atomic<Entry*> entries{nullptr};

}  // namespace

int pass_entry(Entry& entry) {
  if (!entry.listed.exchange(true)) {
    Entry* head = entries.load();
    do entry.next = head;
    while (!entries.compare_exchange_weak(head, &entry));
  }
  uint64_t call = entry.calls.fetch_add(1) + 1;
  int result = 0;
  for (const Fault& fault : faults().list) {
    if (call < fault.first || call > fault.last || fault.name != entry.name) continue;
    if (fault.delay_ms) {
      timespec t{fault.delay_ms / 1000, fault.delay_ms % 1000 * 1000000};
      nanosleep(&t, nullptr);
    }
    if (fault.result) result = fault.result;
  }
  return result;
}

uint64_t calls_of(const char* name) {
  uint64_t calls = 0;
  for (Entry* entry = entries.load(); entry; entry = entry->next)
    if (std::strcmp(entry->name, name) == 0) calls += entry->calls.load();
  return calls;
}

bool symbol_hidden(const char* name) {
  for (const std::string& hidden : faults().hidden)
    if (hidden == name) return true;
  return false;
}

}  // namespace berth::sim

// Where the exports without an implementation lead, see skeleton.inc. Their entries are made at their first call.
extern "C" [[gnu::visibility("hidden")]] int unimplemented_entry(const char* name, int not_supported) {
  using berth::sim::Entry;
  static std::mutex mutex;
  static auto* const made = new std::map<const char*, Entry>;
  std::unique_lock lock(mutex);
  Entry& entry = made->try_emplace(name, name).first->second;
  lock.unlock();
  int injected = berth::sim::pass_entry(entry);
  return injected ? injected : not_supported;
}
