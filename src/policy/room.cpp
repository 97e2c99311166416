#include "policy/room.h"

#include <algorithm>

#include "base/size.h"
#include "policy/accounts.h"
#include "policy/compute_mode.h"
#include "policy/quotas.h"
#include "policy/virtual_devices.h"

namespace berth::policy {
namespace {

// "training-1 (alice) 8 GiB, notebook-1 (bob) 4 GiB, no job 600 MiB, kept free for the driver 1 GiB"
std::string holders(const State& state, DeviceIndex device) {
  std::string text;
  auto add = [&](const std::string& who, uint64_t bytes) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + who + " " + format_size(bytes);
  };
  std::vector<const Job*> jobs;
  for (const auto& [id, job] : state.jobs) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const Job* a, const Job* b) { return promised(*a, device) > promised(*b, device); });
  size_t shown = 0;
  uint64_t rest = 0;
  for (const Job* job : jobs) {
    if (shown < 8)
      add(job->name + " (" + job->user + ")", promised(*job, device));
    else
      rest += promised(*job, device);
    shown += promised(*job, device) > 0 ? 1 : 0;
  }
  add("more jobs", rest);
  add("processes of no job", state.devices[device].unmanaged);
  add("kept free for the driver", state.devices[device].headroom);
  return text;
}

// Without a quota there is nothing to wait for, unless the device is for one job at a time.
bool must_queue(const State& state, const Wish& wish) {
  return wish.quota || compute_mode(state.devices[wish.device]) != ComputeMode::shared;
}

std::vector<Slot> slots_now(const State& state, const Wanted& wanted, const std::vector<DeviceIndex>& closed) {
  std::vector<Slot> slots;
  for (const Wish& wish : wanted) {
    if (!is_open(state, wish.device) || (contains(closed, wish.device) && must_queue(state, wish))) continue;
    slots.push_back(
        {wish.device, wish.quota.value_or(0), promisable(state, wish.device), wish.most, jobs_on(state, wish.device)});
  }
  return slots;
}

Error never_fits(const State& state, const Wanted& wanted, size_t gpus, size_t fit) {
  auto largest = std::max_element(wanted.begin(), wanted.end(), [&](const Wish& a, const Wish& b) {
    return state.devices[a.device].total < state.devices[b.device].total;
  });
  if (gpus == 0 || wanted.size() == 1) return check_size(state, largest->device, *largest->quota, gpus).error();
  uint64_t total = 0, headroom = 0;
  for (const Wish& wish : wanted)
    total += state.devices[wish.device].total, headroom += state.devices[wish.device].headroom;
  return {"usage", "asked for " + amount_text(*largest->quota, gpus) + ", but the " + std::to_string(wanted.size()) +
                       " devices have " + format_size(total) + ", of which " + format_size(headroom) +
                       " stay free for the driver: " + (fit ? std::to_string(fit) : "none") +
                       " of them would fit; ask for fewer or smaller ones"};
}

// It would wait for ever.
Error all_prohibited(const State& state, const Wanted& asked) {
  std::string advice = asked.size() > 1           ? ", and so are the other devices; change their modes"
                       : state.devices.size() > 1 ? "; choose another with --device, or change that mode"
                                                  : "; change that mode";
  return {"refused", not_open_text(state, asked.front().device) + advice};
}

}  // namespace

bool contains(const std::vector<DeviceIndex>& devices, DeviceIndex device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

Result<Wanted> possible(const State& state, const Wanted& asked, size_t gpus) {
  Wanted permitted, wanted;
  std::vector<Slot> empty, allowed;
  for (const Wish& wish : asked) {
    const Device& device = state.devices[wish.device];
    if (compute_mode(device) == ComputeMode::prohibited) continue;
    permitted.push_back(wish);
    if (wish.quota.value_or(0) > could_ever_promise(device)) continue;
    wanted.push_back(wish);
    empty.push_back({wish.device, wish.quota.value_or(0), could_ever_promise(device)});
    allowed.push_back(empty.back());
    allowed.back().most = wish.most;
  }
  if (permitted.empty()) return all_prohibited(state, asked);
  if (size_t fit = count_of(empty); wanted.empty() || fit < gpus) return never_fits(state, permitted, gpus, fit);
  if (count_of(allowed) >= gpus) return wanted;
  return Error{"limit", "asked for " + amount_text(*wanted.front().quota, gpus) +
                            "; the configuration leaves this user room for " + std::to_string(count_of(allowed)) +
                            " of them; ask for fewer or smaller ones, or end one of your jobs"};
}

std::vector<DeviceIndex> find_room(const State& state, const Wanted& wanted, size_t gpus,
                                   const std::vector<DeviceIndex>& closed) {
  return spread(slots_now(state, wanted, closed), std::max<size_t>(gpus, 1));
}

std::string no_room_text(const State& state, DeviceIndex device, const std::string& asked) {
  return "asked for " + asked + ", but " + place_text(device) + " has " + format_size(promisable(state, device)) +
         " of " + format_size(state.devices[device].total) + " left to promise (" + holders(state, device) + ")";
}

std::string no_room(const State& state, const Wanted& wanted, size_t gpus) {
  Wanted open;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(open),
               [&](const Wish& wish) { return is_open(state, wish.device); });
  if (open.empty())
    return not_open_text(state, wanted.front().device) + (wanted.size() > 1 ? "; no other device is free" : "");
  auto best = std::max_element(open.begin(), open.end(), [&](const Wish& a, const Wish& b) {
    return promisable(state, a.device) < promisable(state, b.device);
  });
  std::string text = no_room_text(state, best->device, amount_text(best->quota.value_or(0), gpus));
  if (wanted.size() > 1)
    text += open.size() == wanted.size() ? "; the other devices have less"
                                         : "; the other devices have less or are not free";
  if (size_t fit = gpus > 1 ? count_of(slots_now(state, wanted, {})) : 0; fit > 0 && fit < gpus)
    text += "; there is room for " + std::to_string(fit) + " of them";
  return text;
}

}  // namespace berth::policy
