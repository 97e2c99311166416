// The virtual devices of this process (`berth run -g N`): what a job with them sees as GPUs, each on a card of its own or
// beside others. They lie between the rest of the library and the driver: in a process that has them the slots of all functions
// in whose signature a device stands lead to the entries of generated/driver_virtual.cpp, which know N devices and call the
// driver (`raw::`) for the card. Everything above - forwarders, gates, intercepts, accounts - meets N devices as if the driver
// had them, and a process without virtual devices pays nothing.
//
// Two ways to see them:
//   the driver interface   shows N devices. The first of a card that is used has the card's primary context and default pool;
//                          each other one a context and a pool of its own, so that a reset frees what is its own.
//   the CUDA runtime       asks for an export table before it enumerates. From then on calls of the program get the truth for
//                          the cards' numbers (the runtime checks it against its own), and all virtual devices of a card share
//                          its primary context. Which one a thread means is what it last made current through the runtime
//                          alias library (runtime_alias.cpp), else what the process last did, else its rank on this machine.
//                          Numbers beyond the cards' stay valid: programs call the driver with the runtime's numbers.
// No decision is made by the address of a caller. Calls from within this library (guest_depth > 0) always mean virtual devices.
#pragma once
#include "abi/generated/driver_virtual.h"
#include "shim/client.h"
#include "shim/guest.h"
#include "wire/virtual_device.h"

namespace berth::shim {

struct VirtualDevice {
  uint8_t place;  // in the daemon's page
  uint8_t card;   // the driver's number
  wire::Uuid uuid;
  // Under VirtualDevices::lock; of those that don't have the card's own.
  CUcontext primary;
  uint32_t references;
  unsigned flags;
  CUmemoryPool default_pool, pool;
};

class VirtualDevices {
 public:
  // How a number that a call hands in is meant.
  struct Seen {
    bool valid;
    bool plain;        // a card, by the runtime's eyes
    uint32_t ordinal;  // the virtual device
    CUdevice card;     // for the driver; an invalid number stays one
  };
  Seen see(CUdevice device) const;

  // The virtual device that the calling thread means on a card whose contexts don't tell.
  uint32_t current_on(uint32_t card) const;
  int of_thread() const;           // what the calling thread has made current; -1: nothing
  void make_current(int ordinal);  // of the calling thread; -1: nothing
  int exchange(int ordinal);       // the same for the length of a call; returns what it was

  // Of a context, a stream (null: the current context's), or memory. False if the driver knows none.
  bool of_context(CUcontext context, uint32_t* ordinal) const;
  bool of_stream(CUstream stream, bool per_thread, uint32_t* ordinal) const;
  uint32_t of_memory(CUdeviceptr address, int card) const;
  uint32_t of_node(CUgraphNode node, int card) const;  // of an allocation node

  // Does it have the card's own primary context and pool? Who asks first on a card gets it.
  bool claims_card(uint32_t ordinal);
  bool owns_card(uint32_t ordinal) const { return owners_[devices[ordinal].card].load(std::memory_order_acquire) == static_cast<int>(ordinal) + 1; }
  bool has_owner(uint32_t card) const { return owners_[card].load(std::memory_order_acquire) != 0; }
  bool shares_contexts() const { return runtime_.load(std::memory_order_acquire); }
  void meet_runtime() { runtime_.store(true, std::memory_order_release); }

  uint32_t count, cards;
  VirtualDevice devices[wire::kMaxDevices];
  GuestLock lock;

 private:
  friend void install_virtual_devices(Client& client, const Introduction& introduction);
  std::atomic<bool> runtime_;           // has asked for an export table
  std::atomic<int> latest_;             // what any thread last made current, plus 1; 0: none has
  int rank_;                            // of this process on this machine, as launchers tell it; -1: not told
  std::atomic<int> owners_[wire::kMaxDevices];  // by card: virtual device plus 1
};

// Null in a process that has none.
extern VirtualDevices* virtual_devices __attribute__((visibility("hidden")));

// Before the driver's cuInit, in a job with virtual devices: shows the driver the job's cards in place of what
// CUDA_VISIBLE_DEVICES says of the virtual ones, and takes it back at the end of the scope. BERTH_GPUS is only the reason to
// ask; the daemon tells.
class CardsInEnvironment {
 public:
  CardsInEnvironment();
  ~CardsInEnvironment();
  CardsInEnvironment(const CardsInEnvironment&) = delete;
  CardsInEnvironment& operator=(const CardsInEnvironment&) = delete;

 private:
  char** entry_ = nullptr;
  char* theirs_ = nullptr;
};

// Between attaching and the moment that this process counts as a client.
void install_virtual_devices(Client& client, const Introduction& introduction);

// The account for what a program does on a device, by the number that it has handed in.
inline uint32_t account_of(CUdevice device) {
  if (!virtual_devices) return static_cast<uint32_t>(device);
  if (device < 0 || static_cast<uint32_t>(device) >= virtual_devices->cards || !virtual_devices->shares_contexts())
    return static_cast<uint32_t>(device);
  return virtual_devices->current_on(static_cast<uint32_t>(device));
}

// The card of a device, as our hello has numbered them: what the scheduler's pages go by.
inline uint32_t card_of(uint32_t device) {
  return virtual_devices && device < virtual_devices->count ? virtual_devices->devices[device].card : device;
}

// What the driver is handed in place of a device.
inline CUdevice on_card(CUdevice device) { return virtual_devices->see(device).card; }
inline CUmemLocation on_card(CUmemLocation location) {
  if (location.type == abi::kMemLocationDevice) location.id = on_card(location.id);
  return location;
}
template <class Struct>
struct OnCard {  // lives until the driver has been called
  Struct copy;
  bool given;
  operator const Struct*() const { return given ? &copy : nullptr; }
  operator Struct*() { return given ? &copy : nullptr; }
};
inline OnCard<CUmemLocation> on_card(const CUmemLocation* location) {
  return {location ? on_card(*location) : CUmemLocation{}, location != nullptr};
}
template <class Struct>
OnCard<Struct> on_card(const Struct* properties) {
  OnCard<Struct> result{properties ? *properties : Struct{}, properties != nullptr};
  result.copy.location = on_card(result.copy.location);
  return result;
}

}  // namespace berth::shim
