// libberth_cudart.so: preloaded into programs that use the shared CUDA runtime, for the runtime sees cards only (it checks what
// it sees, and nothing of that check is touched). It exports the runtime's functions in whose signature a device stands, and those
// that take from the current one, without a version, so that every caller finds these first, and calls the runtime's own.
//
// In a process without virtual devices every call passes as it is. With them a program's numbers are those of the virtual
// devices: each call that is handed one means it while it runs (`Meant`; our libcuda.so.1 then accounts to it) and hands the
// runtime the number of its card. Numbers that are none are handed on as one that is none, for the runtime's own error.
//
// Any thread. No lock is held across a call of the runtime.
#pragma once
#include <stdint.h>

#include <atomic>

#include "abi/generated/runtime_rows.h"
#include "abi/runtime_api.h"
#include "shim/guest.h"
#include "shim/runtime_view.h"

namespace berth::shim::alias {

using abi::runtime::Row;

// The runtime's function; null if no runtime is loaded, or it lacks the function.
void* find(Row row);
template <class Function>
Function find(Row row) {
  return reinterpret_cast<Function>(find(row));
}
cudaError_t no_function();  // what to answer then
int runtime_version();      // as cudaRuntimeGetVersion: 1000 * major + 10 * minor; 0: none

// Asks our libcuda.so.1 once; until that has answered (it can't before cuInit succeeds) the answer is no.
enum class Seen : uint8_t { unknown, cards, virtual_devices };
extern std::atomic<Seen> seen __attribute__((visibility("hidden")));
bool look();
inline bool has_virtual_devices() {
  Seen now = seen.load(std::memory_order_acquire);
  return now == Seen::unknown ? look() : now == Seen::virtual_devices;
}

// From here on: only with virtual devices.
extern const RuntimeView* view __attribute__((visibility("hidden")));
extern int count __attribute__((visibility("hidden")));

inline bool known(int device) { return device >= 0 && device < count; }
inline constexpr int kNoDevice = 0x7fff;  // beyond any card

// What the runtime is handed. Negative numbers have meanings of their own (the host).
inline int on_card(int device) { return known(device) ? view->card_of(device) : device < 0 ? device : kNoDevice; }
inline cudaMemLocation on_card(cudaMemLocation location) {
  if (location.type == abi::kMemLocationDevice) location.id = on_card(location.id);
  return location;
}
template <class Struct>
struct OnCard {  // lives until the runtime has been called
  Struct copy;
  bool given;
  operator const Struct*() const { return given ? &copy : nullptr; }
  operator Struct*() { return given ? &copy : nullptr; }
};
inline OnCard<cudaMemLocation> on_card(const cudaMemLocation* location) {
  return {location ? on_card(*location) : cudaMemLocation{}, location != nullptr};
}
inline OnCard<cudaMemPoolProps> on_card(const cudaMemPoolProps* properties) {
  OnCard<cudaMemPoolProps> result{properties ? *properties : cudaMemPoolProps{}, properties != nullptr};
  result.copy.location = on_card(result.copy.location);
  return result;
}

// The device in what is handed in; -1: none.
inline int device_in(int device) { return device; }
inline int device_in(cudaMemLocation location) { return location.type == abi::kMemLocationDevice ? location.id : -1; }
inline int device_in(const cudaMemLocation* location) { return location ? device_in(*location) : -1; }
inline int device_in(const cudaMemPoolProps* properties) { return properties ? device_in(properties->location) : -1; }

// What the calling thread has made current; 0 from the first question on if it has chosen none.
int thread_device();
// The process's answer to that, as cudaSetValidDevices changes it.
extern int default_device __attribute__((visibility("hidden")));

// A virtual device on a card that the runtime has named: the thread's if it is there, else the first.
int on_card_of(int card);
// Whose memory at an address is, given the card.
int of_memory(const void* address, int card);

// While it lives the calling thread means a virtual device (a number that is none: what it meant before).
class Meant {
 public:
  explicit Meant(int device) : changed_(known(device)), before_(changed_ ? view->exchange(device) : -1) {}
  ~Meant() {
    if (changed_) view->exchange(before_);
  }
  Meant(const Meant&) = delete;
  Meant& operator=(const Meant&) = delete;

 private:
  bool changed_;
  int before_;
};

}  // namespace berth::shim::alias
