// The sums that decisions are made on, and the one way to change them.
#pragma once
#include "policy/state.h"

namespace berth::policy {

// What a client's account on one device is charged with, overhead included (imports are charged to their exporter);
// without overhead; without overhead and managed memory, that is what certainly lies in device memory.
uint64_t held(const Bytes& bytes);
inline uint64_t held(const Holding& holding) { return held(holding.bytes); }
uint64_t counted(const Holding& holding);
uint64_t surely_resident(const Holding& holding);

// Sets one kind of bytes of a client and keeps the sums right. Every change of a holding goes through here. On a device
// as a whole where the job has virtual devices, more goes to the one of the client's first context (else where it holds
// anything, else the first), and less is taken from that one last.
void set_bytes(State& state, Client& client, Place place, Kind kind, uint64_t bytes);

uint64_t bytes_of(const Client& client, Place place, Kind kind);

// What the job, or one virtual device of it, uses there, what of this is of dead clients, and its quota.
struct Use {
  std::optional<uint64_t> quota;
  uint64_t used = 0, leaving = 0;
};
Use use_of(const Job& job, Place place);

// What the job holds on to: its quota (of each virtual device), or its use where that is more or nothing was promised.
uint64_t promised(const Job& job, DeviceIndex device);

// Device memory that is neither promised nor used, `but` for one job's part (0: nobody's). The headroom is still in it.
uint64_t unpromised(const State& state, DeviceIndex device, JobId but = 0);

// What admission can still promise: unpromised less the headroom.
uint64_t promisable(const State& state, DeviceIndex device, JobId but = 0);

// Device memory in nobody's hands right now.
uint64_t idle(const State& state, DeviceIndex device);

// What the job could be granted now; on a device as a whole the sum of its virtual devices there.
uint64_t available(const State& state, const Job& job, Place place);

// The same once what its dead still hold has left, for which a reservation waits. Programs are shown this: one that
// starts after another sees what that one saw.
uint64_t available_soon(const State& state, const Job& job, Place place);

// True if the job has a quota on any device.
bool has_quota(const Job& job);

// Jobs that are running or paused there.
size_t jobs_on(const State& state, DeviceIndex device);

}  // namespace berth::policy
