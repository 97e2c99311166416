// The state that every decision about memory is made on: devices, jobs, clients. Plain data; no I/O, no threads, and
// the clock is always an argument. The daemon's event loop is its one owner.
//
// Sums (used and leaving of JobDevice and VirtualDevice, Device::used) are kept beside the clients they sum up; only
// src/policy changes them.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"

namespace berth::policy {

using Time = std::chrono::nanoseconds;  // since any fixed point
using Uuid = std::array<uint8_t, 16>;
using DeviceIndex = uint32_t;  // place in State::devices, as nvidia-smi counts
using JobId = uint64_t;
using ClientId = uint64_t;

inline constexpr uint64_t kDefaultHeadroom = 1ull << 30;
inline constexpr uint64_t kDefaultContextCost = 518ull << 20;  // measured on an H200; corrected from NVML
inline constexpr uint64_t kDriftBytes = 64ull << 20;
inline constexpr int64_t kMaxVirtualDevices = 32;        // of a job
inline constexpr Time kQuiet = std::chrono::seconds(1);  // an account unchanged for so long can be compared with NVML

// The same values as the wire's; the daemon asserts it.
enum class Kind : uint32_t { linear, managed, pool, physical, array, graph, imported, overhead, count };
inline constexpr size_t kKinds = static_cast<size_t>(Kind::count);

// Strictest last. `shared` is what CUDA calls default.
enum class ComputeMode : uint8_t { shared, exclusive, prohibited };

struct Device {
  Uuid uuid{};
  std::string uuid_text;  // "GPU-..."
  std::string name;
  uint64_t total = 0;
  uint64_t unmanaged = 0;  // held by processes of no job and by the driver itself
  uint64_t headroom = kDefaultHeadroom;
  uint64_t context_cost = kDefaultContextCost;
  bool context_cost_learned = false;
  uint64_t used = 0;  // by all jobs
  ComputeMode configured_mode = ComputeMode::shared, card_mode = ComputeMode::shared;  // see compute_mode.h
  std::string stranger;  // a process of no job that computes there, for people; "" = none
};

enum class Priority : uint8_t { low, normal, high };

// waiting -> running <-> paused -> ended; a waiting job that gives up is erased, an ended one stays for `ps -a`.
enum class JobState : uint8_t { waiting, running, paused, ended };

// A job on one device.
struct JobDevice {
  bool placed = false;            // the job may use the device
  bool wanted = false;            // a waiting job would take a place there
  std::optional<uint64_t> quota;  // none: it may take what is neither promised nor used; of virtual devices the sum
  uint64_t most = ~0ull;          // while it waits: what its user's limit leaves for quotas there
  uint64_t used = 0;              // by all its processes, overhead and `leaving` included
  uint64_t leaving = 0;           // of dead clients
};

// One of the devices that a job with `-g` is shown: a part of a device, with a quota of its own. Its sums are parts of
// those of JobDevice.
struct VirtualDevice {
  DeviceIndex device = 0;
  uint64_t quota = 0;
  uint64_t used = 0, leaving = 0;
  Uuid uuid{};  // what programs are shown
  std::string uuid_text;
};

inline constexpr double kDefaultSlowdown = 1.1;  // latency budget of jobs above others; 1: no company

struct Job {
  JobId id = 0;
  std::string name, user;
  uint32_t uid = 0;
  std::vector<std::string> command;
  JobState state = JobState::running;
  Priority priority = Priority::normal;
  uint32_t weight = 100;
  std::optional<double> max_share;
  std::optional<double> max_slowdown;  // latency budget where lower jobs are company; 1 = none of them
  bool strict = false;
  bool is_default = false;         // of processes that nobody started with `berth run` (system service)
  std::vector<JobDevice> devices;  // by DeviceIndex
  uint32_t gpus = 0;               // virtual devices that it asked for; 0: it sees its devices themselves
  std::vector<VirtualDevice> virtual_devices;  // so many once it is placed
};

// attached -> silent (closed its connection, lives) -> attached; any -> leaving -> gone. escaped: uses the device
// unattached and is charged through NVML.
enum class ClientState : uint8_t { attached, silent, escaped, leaving };

using Bytes = std::array<uint64_t, kKinds>;  // by Kind

// What one client holds on one device.
struct Holding {
  Bytes bytes{};                         // granted; overhead is corrected from NVML
  uint64_t peak = 0;                     // most counted bytes since the present NVML reading began
  Time changed{0};                       // last grant or release
  bool listed = false;                   // NVML has listed the process on this device
  bool refreshed = false;                // the client said that its overhead changed
  bool drift_told = false;
  std::optional<uint32_t> home;  // the virtual device there of its first context
};

struct Client {
  ClientId id = 0;
  JobId job = 0;
  ProcessId process;
  bool viewer = false;  // sees the job's numbers, holds nothing
  std::string command;
  ClientState state = ClientState::attached;
  Time since{0};                  // in this state
  std::vector<Holding> holdings;  // by DeviceIndex
  std::vector<Bytes> parts;       // by the job's virtual devices: of the holdings on their devices
};

// Where bytes are: on a device, and on which of the job's virtual devices there if it has any. Without that of the
// device as a whole.
struct Place {
  Place(DeviceIndex the_device) : device(the_device) {}
  Place(const Job& job, uint32_t v) : device(job.virtual_devices[v].device), virtual_device(v) {}
  DeviceIndex device;
  std::optional<uint32_t> virtual_device;
};

struct State {
  std::vector<Device> devices;
  std::map<JobId, Job> jobs;
  std::map<ClientId, Client> clients;
  std::deque<JobId> queue;  // waiting jobs, first come first served
  JobId next_job = 1;
  ClientId next_client = 1;
};

inline bool lives(const Job& job) { return job.state == JobState::running || job.state == JobState::paused; }

const char* to_string(Priority priority);
const char* to_string(JobState state);
const char* to_string(ClientState state);
std::optional<Priority> parse_priority(std::string_view text);

inline uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace berth::policy
