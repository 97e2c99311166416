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
  if (!current_client()) ::cuInit(0);
  return virtual_devices ? static_cast<int>(virtual_devices->count) : 0;
}

int card_of_device(int device) { return known(device) ? virtual_devices->devices[device].card : device; }
int current() { return virtual_devices ? virtual_devices->of_thread() : -1; }

void make_current(int device) {
  if (device < 0 || known(device)) virtual_devices->make_current(device);
}

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

int of_bus_id(const char* text) {
  Inside inside;
  CUdevice device;
  return ::cuDeviceGetByPCIBusId(&device, text) == CUDA_SUCCESS ? device : -1;
}

// Only memory is known by device where contexts are shared; streams, events and modules stay.
bool reset(int device) {
  Client* client = current_client();
  auto whose = static_cast<uint8_t>(device);
  uint8_t card = virtual_devices->devices[device].card;
  bool others = false;
  if (!client) return false;
  client->table.for_each([&](Allocation& a) {
    bool holds = a.bytes && a.space != Space::context && a.device != whose;
    others |= holds && a.device < virtual_devices->count && virtual_devices->devices[a.device].card == card;
  });
  if (!others) return false;
  for (;;) {
    CUdeviceptr pointer = 0;
    client->table.for_each([&](Allocation& a) {
      if (a.space == Space::pointer && a.device == whose) pointer = a.key;
    });
    if (!pointer) break;
    CUresult result = ::cuMemFree_v2(pointer);
    Allocation gone;
    if (result != CUDA_SUCCESS && client->table.remove(Space::pointer, pointer, &gone)) client->release(gone);
  }
  return true;
}

constexpr RuntimeView kView = {kRuntimeView, start, card_of_device, current,   make_current, of_memory,
                               of_stream,    uuid,  bus,            of_bus_id, reset};

}  // namespace

extern "C" BERTH_EXPORT const RuntimeView* berth_shim_devices(unsigned version) { return version == kRuntimeView ? &kView : nullptr; }
