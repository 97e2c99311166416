// The virtual devices as the runtime alias library sees them.
#include "shim/runtime_view.h"

#include <string.h>

#include "shim/call.h"
#include "shim/virtual_devices.h"

using namespace berth;
using namespace berth::shim;

namespace {

// Calls of ours always mean virtual devices.
struct Inside : Call {};

bool known(int device) { return virtual_devices && device >= 0 && static_cast<uint32_t>(device) < virtual_devices->count; }

int start() {
  if (!current_client() && ::cuInit(0) != CUDA_SUCCESS) return -1;
  return virtual_devices ? static_cast<int>(virtual_devices->count) : 0;
}

int card_of_device(int device) { return known(device) ? virtual_devices->devices[device].card : device; }
int current() { return virtual_devices ? virtual_devices->of_thread() : -1; }

void make_current(int device) {
  if (device < 0 || known(device)) virtual_devices->make_current(device);
}

int exchange(int device) { return virtual_devices->exchange(device); }

int of_memory(CUdeviceptr address, int card) {
  Inside inside;
  return card < 0 ? card : static_cast<int>(virtual_devices->of_memory(address, card));
}

int of_stream(CUstream stream, int card) {
  Inside inside;
  uint32_t device;
  if (stream && virtual_devices->of_stream(stream, false, &device)) return static_cast<int>(device);
  return static_cast<int>(virtual_devices->current_on(static_cast<uint32_t>(card < 0 ? 0 : card)));
}

void uuid(int device, unsigned char* bytes) { ::memcpy(bytes, virtual_devices->devices[device].uuid.bytes, 16); }

void bus(int device, int* domain, int* number, int* slot) {
  *domain = static_cast<int>(wire::kVirtualDomain);
  *number = static_cast<int>(wire::virtual_bus(virtual_devices->devices[device].place));
  *slot = 0;
}

int of_node(CUgraphNode node, int card) {
  Inside inside;
  return static_cast<int>(virtual_devices->of_node(node, card));
}

// Whether another virtual device on the same card has something in this process that a reset of the card would take from it.
bool others_hold(Client& client, uint8_t whose) {
  const VirtualDevices& all = *virtual_devices;
  bool hold = false;
  client.table.for_each([&](const Allocation& a) {
    bool holds = a.space == Space::stream || (a.bytes && a.space != Space::context && a.space != Space::primary);
    hold |= holds && a.device != whose && a.device < all.count && all.devices[a.device].card == all.devices[whose].card;
  });
  return hold;
}

CUresult free_one(const Allocation& a) {
  if (a.space == Space::pointer) return ::cuMemFree_v2(a.key);
  if (a.space == Space::array) return ::cuArrayDestroy(reinterpret_cast<CUarray>(a.key));
  return ::cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(a.key));
}

// What a device holds is known of memory alone where contexts are shared; streams, events and modules stay. What a pool has
// handed out stays, too: a pool has no way to take it back.
bool reset(int device) {
  Client* client = current_client();
  auto whose = static_cast<uint8_t>(device);
  if (!client || !others_hold(*client, whose)) return false;
  for (;;) {
    Allocation one, gone;
    client->table.for_each([&](const Allocation& a) {
      bool in_context = a.space == Space::pointer || a.space == Space::array || a.space == Space::mipmap;
      if (in_context && a.device == whose) one = a;
    });
    if (one.space == Space::empty) break;
    if (free_one(one) != CUDA_SUCCESS && client->table.remove(one.space, one.key, &gone)) client->release(gone);
  }
  return true;
}

constexpr RuntimeView kView = {kRuntimeView, start,     card_of_device, current, make_current, exchange,
                               of_memory,    of_stream, of_node,        uuid,    bus,          reset};

}  // namespace

extern "C" BERTH_EXPORT const RuntimeView* berth_shim_devices(unsigned version) { return version == kRuntimeView ? &kView : nullptr; }
