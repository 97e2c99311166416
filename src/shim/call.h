// What an intercept is handed: the guard of its class. The generated entry makes it, asks `bypass` and calls the body; a
// body of class alloc can only reserve through its AllocCall, so there is none without its gate.
//
// Every guard marks the thread as inside us: what the driver calls while it serves us goes straight through.
#pragma once
#include "abi/driver_types.h"
#include "shim/client.h"
#include "shim/gate.h"
#include "shim/guest.h"

namespace berth::shim {

class Call {
 public:
  Call() { ++guest_depth; }
  ~Call() { --guest_depth; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool bypass() const { return guest_depth != 1; }
};

// Before and at attach: cuInit, cuGetProcAddress, captures.
class ContextCall : public Call {};

// A call of a process that may be a client. Not one: straight through.
class ClientCall : public Call {
 public:
  bool bypass() const { return !client_ || Call::bypass(); }
  Client& client() const { return *client_; }

 private:
  Client* client_ = current_client();
};

class QueryCall : public ClientCall {};
class SyncCall : public ClientCall {};
class FreeCall : public ClientCall {};
class UpdateCall : public ClientCall {};

class AllocCall : public ClientCall {
 public:
  AllocCall() { pass_gate(); }

  // Reserves, calls the driver, records; or answers out of memory and leaves nothing behind.
  //   bytes  what the driver will take (footprint.h)
  //   real() the driver's call        key() the new pointer or handle, after success
  template <class Real, class Key>
  CUresult allocate(const Allocation& what, Real real, Key key) {
    Allocation made = what;
    if (!reserve(what, wire::Force::none, &made.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = call_while_leaving(what.device, what.bytes, real);
    if (result != CUDA_SUCCESS) {
      client().release(made);
      return result;
    }
    made.key = key();
    client().table.insert(made);
    return result;
  }

  // As Client::reserve; asks the process's own idle pool memory back before it takes no for an answer.
  bool reserve(const Allocation& what, wire::Force force, uint64_t* granted);
  bool reserve(uint32_t device, wire::Kind kind, uint64_t bytes, wire::Force force, uint64_t* granted);
  // One context. Not granted: what its creation answers, by quota or by the compute mode.
  CUresult reserve_context(uint32_t device, uint64_t* granted);

  // A valid grant and yet no memory: while a dead client's memory is on its way back, waits for it and tries again.
  template <class Real>
  CUresult call_while_leaving(uint32_t device, uint64_t bytes, Real real) {
    CUresult result = real();
    for (int tries = 0; result == CUDA_ERROR_OUT_OF_MEMORY && wait_for_leaving(device, bytes, tries); ++tries) result = real();
    return result;
  }

 private:
  bool wait_for_leaving(uint32_t device, uint64_t bytes, int tries);
};

}  // namespace berth::shim
