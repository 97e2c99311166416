// Where the daemon learns what is on the devices: NVML, or a fake in tests. Used by one thread at a time: by the loop
// thread before it runs, by the worker afterwards.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/reconcile.h"
#include "policy/state.h"

namespace berth::daemon {

struct GpuInfo {
  std::string uuid;  // "GPU-..."
  std::string name;
  uint64_t total_bytes = 0;
  policy::ComputeMode compute_mode = policy::ComputeMode::shared;  // the card's own
};

struct GpuReading {
  uint64_t used_bytes = 0;
  bool lists_processes = true;
  policy::ComputeMode compute_mode = policy::ComputeMode::shared;
  std::vector<policy::ProcessUse> processes;
  bool operator==(const GpuReading&) const = default;
};

class GpuSource {
 public:
  virtual ~GpuSource() = default;
  // All devices, in NVML's order. An error says why there are none.
  virtual Result<std::vector<GpuInfo>> open() = 0;
  // One reading a device, in the order of open().
  virtual Result<std::vector<GpuReading>> read() = 0;
  // Nothing will be read for long: gives back what reading needs (NVML loads 15 MB). The next read() takes it again.
  virtual void rest() {}
  // For people: "driver 580.159.04", "simulated"; "" before open().
  virtual std::string describe() const = 0;
};

// NVML as BERTH_DRIVER chooses it; never our own libnvidia-ml.so.1.
std::unique_ptr<GpuSource> make_nvml_source();

// The 16 bytes that the driver gives for an NVML text "GPU-xxxxxxxx-xxxx-...". False if it is none.
bool parse_uuid(std::string_view text, policy::Uuid* uuid);

}  // namespace berth::daemon
