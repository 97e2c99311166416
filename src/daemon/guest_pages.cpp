// What the pages of attached programs show: written whenever an account of their job, or what it could still get,
// changes.
#include <cstring>
#include <tuple>

#include "daemon/daemon.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"

namespace berth::daemon {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;  // every field stands alone

struct Figures {
  uint64_t free = 0, used = 0, leaving = 0;
};

}  // namespace

void Guests::fill_page(Session& session) {
  const policy::Job& job = daemon_.state.jobs.at(session.job);
  for (size_t i = 0; i < session.places.size(); ++i) {
    if (!session.places[i]) continue;
    const policy::Place place = *session.places[i];
    const policy::Device& device = daemon_.state.devices[place.device];
    const policy::Uuid& uuid = place.virtual_device ? job.virtual_devices[*place.virtual_device].uuid : device.uuid;
    const auto quota = policy::use_of(job, place).quota;
    wire::PageDevice& there = session.page->devices[i];
    std::memcpy(there.uuid.bytes, uuid.data(), sizeof there.uuid.bytes);
    std::memcpy(there.card.bytes, device.uuid.data(), sizeof there.card.bytes);
    there.total_bytes = quota.value_or(device.total);
    there.quota_bytes = quota.value_or(wire::kNoQuota);
  }
  session.page->virtual_devices = static_cast<uint32_t>(job.virtual_devices.size());
  session.page->device_count.store(static_cast<uint32_t>(session.places.size()), kRelaxed);
  pids_stale_ = true;
  update_pages(session.job);
}

void Guests::update_pages(std::optional<policy::JobId> only) {
  if (!only || !daemon_.state.jobs.at(*only).virtual_devices.empty()) pids_stale_ = true;  // which process is on which
  using Key = std::tuple<policy::JobId, policy::DeviceIndex, std::optional<uint32_t>>;
  std::map<Key, Figures> known;  // worked out once for all clients of a job
  for (auto& [id, session] : sessions_) {
    if (only && session.job != *only) continue;
    for (size_t i = 0; i < session.places.size(); ++i) {
      if (!session.places[i]) continue;
      const policy::Place place = *session.places[i];
      auto [it, first] = known.try_emplace({session.job, place.device, place.virtual_device});
      if (first) {
        const policy::Job& job = daemon_.state.jobs.at(session.job);
        const policy::Use use = policy::use_of(job, place);
        it->second = {policy::available_soon(daemon_.state, job, place), use.used - use.leaving, use.leaving};
      }
      wire::PageDevice& shown = session.page->devices[i];
      shown.used_bytes.store(it->second.used, kRelaxed);
      shown.free_bytes.store(it->second.free, kRelaxed);
      shown.leaving_bytes.store(it->second.leaving, kRelaxed);
      policy::ComputeMode mode = policy::compute_mode(daemon_.state.devices[place.device]);
      shown.compute_mode.store(static_cast<uint32_t>(policy::driver_compute_mode(mode)), kRelaxed);
    }
  }
  if (std::exchange(pids_stale_, false)) update_pids();
}

void Guests::update_pids() {
  struct Process {
    uint32_t pid, devices;
  };
  std::map<policy::JobId, std::vector<Process>> processes;
  for (const auto& [id, client] : daemon_.state.clients) {
    if (client.viewer || client.state == policy::ClientState::leaving || processes[client.job].size() == wire::kMaxJobPids) continue;
    uint32_t devices = 0;
    for (size_t v = 0; v < client.parts.size(); ++v) devices |= uint32_t{policy::held(client.parts[v]) > 0} << v;
    processes[client.job].push_back({static_cast<uint32_t>(client.process.pid), devices});
  }
  for (auto& [id, session] : sessions_) {
    const std::vector<Process>& of_job = processes[session.job];
    for (size_t i = 0; i < of_job.size(); ++i) {
      session.page->pids[i].store(of_job[i].pid, kRelaxed);
      session.page->pid_devices[i].store(of_job[i].devices, kRelaxed);
    }
    session.page->pid_count.store(static_cast<uint32_t>(of_job.size()), std::memory_order_release);
  }
}

}  // namespace berth::daemon
