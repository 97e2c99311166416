// What the pages of attached programs show: written whenever an account of their job, or what it could still get,
// changes.
#include <cstring>

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
  for (size_t i = 0; i < session.devices.size(); ++i) {
    if (session.devices[i] < 0) continue;
    auto index = static_cast<policy::DeviceIndex>(session.devices[i]);
    const policy::Device& device = daemon_.state.devices[index];
    const auto& quota = job.devices[index].quota;
    wire::PageDevice& there = session.page->devices[i];
    std::memcpy(there.uuid.bytes, device.uuid.data(), sizeof there.uuid.bytes);
    there.card = there.uuid;
    there.total_bytes = quota.value_or(device.total);
    there.quota_bytes = quota.value_or(wire::kNoQuota);
  }
  session.page->device_count.store(static_cast<uint32_t>(session.devices.size()), std::memory_order_relaxed);
  pids_stale_ = true;
  update_pages(session.job);
}

void Guests::update_pages(std::optional<policy::JobId> only) {
  std::map<std::pair<policy::JobId, policy::DeviceIndex>, Figures> known;  // worked out once for all clients of a job
  for (auto& [id, session] : sessions_) {
    if (only && session.job != *only) continue;
    for (size_t i = 0; i < session.devices.size(); ++i) {
      if (session.devices[i] < 0) continue;
      auto index = static_cast<policy::DeviceIndex>(session.devices[i]);
      auto [it, first] = known.try_emplace({session.job, index});
      if (first) {
        const policy::Job& job = daemon_.state.jobs.at(session.job);
        const policy::JobDevice& there = job.devices[index];
        it->second = {policy::available_soon(daemon_.state, job, index), there.used - there.leaving, there.leaving};
      }
      wire::PageDevice& shown = session.page->devices[i];
      shown.used_bytes.store(it->second.used, kRelaxed);
      shown.free_bytes.store(it->second.free, kRelaxed);
      shown.leaving_bytes.store(it->second.leaving, kRelaxed);
      policy::ComputeMode mode = policy::compute_mode(daemon_.state.devices[index]);
      shown.compute_mode.store(static_cast<uint32_t>(policy::driver_compute_mode(mode)), kRelaxed);
    }
  }
  if (std::exchange(pids_stale_, false)) update_pids();
}

void Guests::update_pids() {
  std::map<policy::JobId, std::vector<uint32_t>> pids;
  for (const auto& [id, client] : daemon_.state.clients)
    if (!client.viewer && client.state != policy::ClientState::leaving && pids[client.job].size() < wire::kMaxJobPids)
      pids[client.job].push_back(static_cast<uint32_t>(client.process.pid));
  for (auto& [id, session] : sessions_) {
    const std::vector<uint32_t>& of_job = pids[session.job];
    for (size_t i = 0; i < of_job.size(); ++i) session.page->pids[i].store(of_job[i], kRelaxed);
    session.page->pid_count.store(static_cast<uint32_t>(of_job.size()), std::memory_order_release);
  }
}

}  // namespace berth::daemon
