// Readings of NVML: when they are taken, and what follows from them.
#pragma once
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/process.h"
#include "daemon/device_lock.h"
#include "daemon/gpu_source.h"

namespace berth::daemon {

class Daemon;

// A process on a device that is no client, as the worker has looked it up.
struct GpuProcess {
  ProcessId process;
  std::string command;
  uid_t uid = 0;
  std::vector<ProcessId> chain;
  std::vector<std::string> cgroups;
};

struct UnmanagedProcess {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string command;
  std::optional<uint64_t> bytes;
};

// "another berth daemon, that of bob (process 812), shares out GPU 0 too; ..."
std::string shared_device_text(policy::DeviceIndex device, const LockHolder& holder);

constexpr policy::Time kUsual = std::chrono::seconds(5);  // between readings, while jobs live and something changes
constexpr policy::Time kCalm = std::chrono::seconds(60);  // at most, while nothing does
// The pause after the next reading: doubled as long as nothing changes.
policy::Time next_pace(policy::Time pace, bool changing);

class Gpus {
 public:
  Gpus(Daemon& daemon, std::unique_ptr<GpuSource> source);

  // Finds the devices and takes the first reading, on the caller's thread: before the loop runs. No device is no error:
  // admission then says why (no_device()), and looks again.
  void open();
  const std::optional<Error>& no_device() const { return no_device_; }
  const std::string& describe() const { return description_; }

  // Calls `then` when the figures are at most a second old and, if there was no device, it has been looked for again.
  void when_fresh(std::function<void()> then);

  // Asks for a reading that begins after now, since something has happened: the next ones are not rare. Requests meanwhile are one.
  void request();

  // Sets the next reading by what is going on: bytes leaving, jobs alive and at work, alive and calm, or nothing.
  void settle();

  // The daemon that holds the lock of a device if not we: it shares the device out, too.
  std::optional<LockHolder> locked_by(policy::DeviceIndex device) const;
  // Takes locks that others have let go, and tells of a holder that is new.
  void lock_devices();

  const std::vector<UnmanagedProcess>& unmanaged(policy::DeviceIndex device) const { return unmanaged_.at(device); }
  uint64_t used_bytes(policy::DeviceIndex device) const { return used_.at(device); }

 private:
  using Readings = std::pair<Result<std::vector<GpuReading>>, std::vector<GpuProcess>>;
  void adopt(const std::vector<GpuInfo>& infos, std::string description);
  void apply_configured_modes();
  void note_compute(policy::DeviceIndex device, const GpuReading& reading,
                    const std::map<pid_t, const GpuProcess*>& unmanaged);
  void read_soon();
  void begin();
  void done(policy::Time began, Readings readings);
  void take(policy::Time began, const std::vector<GpuReading>& readings, const std::vector<GpuProcess>& processes);
  void judge(const GpuProcess& process, policy::JobId job, policy::Time now);
  void escaped(const GpuProcess& process, policy::JobId job);
  void wait(policy::Time delay);
  bool guarding() const;

  Daemon& daemon_;
  std::unique_ptr<GpuSource> source_;  // the worker's, once the loop runs
  std::string description_;
  std::optional<Error> no_device_;
  std::vector<std::vector<UnmanagedProcess>> unmanaged_;
  std::vector<uint64_t> used_;
  std::vector<UniqueFd> locks_;
  std::vector<LockHolder> lock_holders_;
  std::vector<std::optional<std::string>> told_holders_;
  asio::steady_timer timer_;
  policy::Time timer_at_{0};
  policy::Time pace_ = kUsual;  // between readings while jobs live: longer and longer while they all say the same
  std::vector<GpuReading> last_;
  bool timer_set_ = false, wanted_ = false, reading_ = false, again_ = false, failed_ = false, resting_ = false;
  policy::Time last_began_{0};
  std::vector<std::function<void()>> waiting_;  // for the next reading
  std::map<ProcessId, policy::Time> suspects_;  // below a job, on a device and not attached; since when
  std::set<ProcessId> told_unmanaged_;
};

}  // namespace berth::daemon
