// The CUDA driver library as we stand in for it: its real library and what the intercepts share.
#pragma once
#include "abi/generated/driver_real.h"
#include "abi/generated/driver_rows.h"
#include "shim/call.h"
#include "shim/real_library.h"

namespace berth::shim {

RealLibrary& real_driver();

// The device of the thread's current context; false without one (the driver's own answer is then the right one).
bool current_device(uint32_t* device);

// Waits in the caller for as long as work on the current device is held: for what can't wait on the device itself.
void hold_caller(Client& client);

// Lets this thread make calls that would break a capture, also one of another thread (recorded on the real driver): a thread in
// relaxed mode may. For `active` the usual: only while there is one.
class CaptureSafe {
 public:
  explicit CaptureSafe(bool active = berth_fork_page->captures.load(std::memory_order_relaxed) != 0) : active_(active) { exchange(); }
  ~CaptureSafe() { exchange(); }
  CaptureSafe(const CaptureSafe&) = delete;
  CaptureSafe& operator=(const CaptureSafe&) = delete;

 private:
  void exchange() {
    if (active_) real::cuThreadExchangeStreamCaptureMode(&mode_);
  }
  const bool active_;
  CUstreamCaptureMode mode_ = abi::kCaptureModeRelaxed;
};

// As current_device, and the context with it. A context that was made behind our back (the runtime makes some through its
// private tables) is put on the account now.
bool current_context(AllocCall& call, CUcontext* context, uint32_t* device);

// Devices and counters for the hello. Called once cuInit has succeeded.
Introduction introduce_driver();

}  // namespace berth::shim
