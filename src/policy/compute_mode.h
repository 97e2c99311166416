// Compute modes: how many processes may have contexts on a device. The card has one (nvidia-smi -c), the daemon's
// configuration may give it another, and the stricter one holds; the card's own is never changed.
//
// What NVIDIA documents, and what is made of it:
//   cuda.h, CUcomputemode   0 default: several contexts; 3 exclusive-process: one context, of one process; 2
//   prohibited: none. The
//                           1 of old, exclusive-thread, is "support removed" in NVML's documentation; here it is
//                           like 3.
//   CUDA_ERROR_DEVICE_UNAVAILABLE (46)   "often unavailable due to use of" exclusive-process or prohibited: what a
//   context gets
//                           here. The texts of cuCtxCreate and cuDevicePrimaryCtxRetain still say UNKNOWN (999) for
//                           prohibited; cudaSetDevice, which makes the primary context, says
//                           cudaErrorDevicesUnavailable for both, also 46.
//   CUDA C++ Programming Guide, "Compute Modes"   in exclusive-process mode the context may be current to as many
//   threads of its
//                           process as desired.
// A further context of the process that has the device is let through: that is between the process and the driver.
#pragma once
#include "policy/state.h"

namespace berth::policy {

const char* to_string(ComputeMode mode);
std::optional<ComputeMode> parse_compute_mode(std::string_view text);  // also exclusive_process, exclusive_thread
ComputeMode compute_mode_of_driver(int mode);                          // CUcomputemode, nvmlComputeMode_t
int driver_compute_mode(ComputeMode mode);

ComputeMode compute_mode(const Device& device);  // the one that holds

// May a job be placed there, as far as the mode goes? A job has an exclusive device while it is placed there, `but` for
// itself; so has whoever has contexts there, also a process of no job.
bool is_open(const State& state, DeviceIndex device, JobId but = 0);
// Who has an exclusive device: "train-1 (alice)", "python3 (process 81) of train-1 (alice)"; "" = nobody.
std::string has_device(const State& state, DeviceIndex device, JobId but = 0);
// Why no job may be placed there that could be elsewhere or later: one clear line.
std::string not_open_text(const State& state, DeviceIndex device, JobId but = 0);

// May the client make a context there? One that has contexts may make more.
struct ContextLeave {
  bool given = true;
  bool soon = false;  // not given, but only the dead are in the way
  std::string why;    // "GPU 0 is exclusive and python3 (process 81) of train-1 (alice) has it"
};
ContextLeave context_leave(const State& state, const Client& client, DeviceIndex device);

}  // namespace berth::policy
