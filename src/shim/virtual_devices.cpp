#include "shim/virtual_devices.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/driver_rows.h"
#include "shim/driver.h"
#include "shim/visible_devices.h"

namespace berth::shim {
namespace {

constexpr CUdevice kNoDevice = 0x7fff;  // beyond any card: the driver's own answer to a number that is none

// What this thread last made current through the runtime, plus 1; 0: nothing.
__thread int thread_ordinal __attribute__((tls_model("initial-exec"))) = 0;

// Launchers tell a process its rank on the machine in one of these.
int rank_on_this_machine() {
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
                                           "PALS_LOCAL_RANKID", "SLURM_LOCALID", "LOCAL_RANK"};
  for (const char* name : kNames) {
    const char* text = ::getenv(name);
    if (!text || *text < '0' || *text > '9') continue;
    int rank = ::atoi(text);
    if (rank >= 0) return rank;
  }
  return -1;
}

struct Shown {
  wire::Uuid uuid, card;
  uint8_t place;
};

// The virtual devices of the page that CUDA_VISIBLE_DEVICES leaves, in its order.
uint32_t shown_devices(const wire::DaemonPage& page, const char* list, Shown* shown) {
  wire::Uuid uuids[wire::kMaxDevices];
  uint8_t places[wire::kMaxDevices];
  uint32_t all = page.virtual_devices < wire::kMaxDevices ? page.virtual_devices : wire::kMaxDevices;
  for (uint32_t i = 0; i < all; ++i) uuids[i] = page.devices[i].uuid;
  uint32_t count = visible_devices(list, uuids, all, places);
  for (uint32_t i = 0; i < count; ++i) shown[i] = {uuids[places[i]], page.devices[places[i]].card, places[i]};
  return count;
}

bool same(const wire::Uuid& a, const wire::Uuid& b) { return ::memcmp(&a, &b, sizeof a) == 0; }

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES=";
constexpr size_t kVariableLength = sizeof kVariable - 1;

char** find_variable() {
  for (char** entry = environ; entry && *entry; ++entry)
    if (::strncmp(*entry, kVariable, kVariableLength) == 0) return entry;
  return nullptr;
}

// What CUDA_VISIBLE_DEVICES said while the driver was shown something else.
const char* list_of_program = nullptr;
bool list_is_replaced = false;

// Read by the driver while its cuInit runs, and by nobody later.
char cards_text[kVariableLength + wire::kMaxDevices * kUuidText];

}  // namespace

VirtualDevices* virtual_devices = nullptr;

CardsInEnvironment::CardsInEnvironment() {
  char** entry = ::getenv("BERTH_GPUS") && !current_client() && !virtual_devices ? find_variable() : nullptr;
  if (!entry) return;
  Introduction nobody{};
  nobody.role = wire::Role::viewer;
  Connection look;
  bool refused;
  if (!look.open(nobody, &refused)) return;
  const wire::DaemonPage& page = *look.page();
  if (page.virtual_devices) {
    Shown shown[wire::kMaxDevices];
    uint32_t count = shown_devices(page, *entry + kVariableLength, shown);
    ::memcpy(cards_text, kVariable, kVariableLength);
    char* out = cards_text + kVariableLength;
    for (uint32_t i = 0; i < count; ++i) {
      bool again = false;
      for (uint32_t j = 0; j < i; ++j) again |= same(shown[i].card, shown[j].card);
      if (again) continue;
      char text[kUuidText];
      format_uuid(shown[i].card, text);
      if (out != cards_text + kVariableLength) *out++ = ',';
      ::memcpy(out, text, kUuidText - 1);
      out += kUuidText - 1;
    }
    *out = '\0';
    entry_ = entry;
    theirs_ = *entry;
    list_of_program = theirs_ + kVariableLength;
    list_is_replaced = true;
    __atomic_store_n(entry_, &cards_text[0], __ATOMIC_RELEASE);
  }
  unmap_pages(const_cast<wire::DaemonPage*>(look.page()), sizeof page);
  look.close();
}

CardsInEnvironment::~CardsInEnvironment() {
  if (entry_ && *entry_ == cards_text) __atomic_store_n(entry_, theirs_, __ATOMIC_RELEASE);
}

void install_virtual_devices(Client& client, const Introduction& introduction) {
  const wire::DaemonPage* page = client.page();
  if (!page->virtual_devices || virtual_devices) return;
  auto* made = static_cast<VirtualDevices*>(map_pages(sizeof(VirtualDevices)));
  if (!made) return;
  Shown shown[wire::kMaxDevices];
  uint32_t count = shown_devices(*page, list_is_replaced ? list_of_program : nullptr, shown);
  uint8_t places[wire::kMaxDevices];
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t card = 0; card < introduction.device_count; ++card) {
      if (!same(shown[i].card, introduction.devices[card])) continue;
      VirtualDevice& device = made->devices[made->count];
      device.place = places[made->count] = shown[i].place;
      device.card = static_cast<uint8_t>(card);
      device.uuid = shown[i].uuid;
      ++made->count;
      break;
    }
  if (!made->count) {
    log_line("none of the job's virtual devices is on a card that the driver shows");
    unmap_pages(made, sizeof *made);
    return;
  }
  made->cards = introduction.device_count;
  made->rank_ = rank_on_this_machine();
  client.set_places(places, made->count);
  virtual_devices = made;
  for (int i = 0; i < kVirtualEntryCount; ++i) {
    const VirtualEntry& entry = kVirtualEntries[i];
    berth_driver_raw[entry.row] = berth_driver_slots[entry.row];
    __atomic_store_n(&berth_driver_slots[entry.row], entry.entry, __ATOMIC_RELEASE);
  }
}

VirtualDevices::Seen VirtualDevices::see(CUdevice device) const {
  if (device < 0) return {false, false, 0, device};
  auto number = static_cast<uint32_t>(device);
  if (guest_depth == 0 && number < cards && shares_contexts()) return {true, true, current_on(number), device};
  if (number < count) return {true, false, number, devices[number].card};
  return {false, false, 0, number < cards ? kNoDevice : device};
}

uint32_t VirtualDevices::current_on(uint32_t card) const {
  const int candidates[] = {thread_ordinal - 1, latest_.load(std::memory_order_acquire) - 1,
                            rank_ < 0 ? -1 : rank_ % static_cast<int>(count)};
  for (int candidate : candidates)
    if (candidate >= 0 && devices[candidate].card == card) return static_cast<uint32_t>(candidate);
  for (uint32_t i = 0; i < count; ++i)
    if (devices[i].card == card) return i;
  return 0;
}

int VirtualDevices::of_thread() const { return thread_ordinal - 1; }

void VirtualDevices::make_current(int ordinal) {
  thread_ordinal = ordinal + 1;
  if (ordinal >= 0) latest_.store(ordinal + 1, std::memory_order_release);
}

int VirtualDevices::exchange(int ordinal) {
  int before = of_thread();
  thread_ordinal = ordinal + 1;
  return before;
}

bool VirtualDevices::claims_card(uint32_t ordinal) {
  int nobody = 0;
  owners_[devices[ordinal].card].compare_exchange_strong(nobody, static_cast<int>(ordinal) + 1, std::memory_order_acq_rel);
  return owns_card(ordinal);
}

// A context of the virtual device itself, made by the program or by us, else the card's primary one.
bool VirtualDevices::of_context(CUcontext context, uint32_t* ordinal) const {
  CUcontext current = nullptr;
  real::cuCtxGetCurrent(&current);
  if (!context) context = current;
  if (!context) return false;
  for (uint32_t i = 0; i < count; ++i)
    if (__atomic_load_n(&devices[i].primary, __ATOMIC_ACQUIRE) == context) {
      *ordinal = i;
      return true;
    }
  Allocation known;
  Client* client = current_client();
  if (client && client->table.find(Space::context, reinterpret_cast<uint64_t>(context), &known) && known.references) {
    *ordinal = known.device;
    return true;
  }
  CUdevice card = -1;
  CUresult result = context == current ? raw::cuCtxGetDevice(&card) : raw::cuCtxGetDevice_v2(&card, context);
  if (result != CUDA_SUCCESS || card < 0) return false;
  int owner = owners_[card].load(std::memory_order_acquire);
  *ordinal = !shares_contexts() && owner ? static_cast<uint32_t>(owner) - 1 : current_on(static_cast<uint32_t>(card));
  return true;
}

bool VirtualDevices::of_stream(CUstream stream, bool per_thread, uint32_t* ordinal) const {
  Allocation known;
  Client* client = current_client();
  if (client && client->table.find(Space::stream, reinterpret_cast<uint64_t>(stream), &known)) {
    *ordinal = known.device;
    return true;
  }
  CUcontext context = nullptr;
  CUresult result = per_thread ? real::cuStreamGetCtx_ptsz(stream, &context) : real::cuStreamGetCtx(stream, &context);
  return result == CUDA_SUCCESS && of_context(context, ordinal);
}

uint32_t VirtualDevices::of_memory(CUdeviceptr address, int card) const {
  Allocation known;
  Client* client = current_client();
  CUdeviceptr base = 0;
  size_t size;
  if (client && real::cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS) {
    if (client->table.find(Space::pointer, base, &known)) return known.device;
    if (client->table.find(Space::mapping, base, &known) && client->table.find(Space::physical, known.link, &known)) return known.device;
  }
  CUmemoryPool pool = nullptr;
  if (client && raw::cuPointerGetAttribute(&pool, abi::kPointerPool, address) == CUDA_SUCCESS && pool &&
      client->table.find(Space::pool, reinterpret_cast<uint64_t>(pool), &known) && known.kind == wire::Kind::pool)
    return known.device;
  CUcontext context = nullptr;
  uint32_t ordinal;
  if (!shares_contexts() && raw::cuPointerGetAttribute(&context, abi::kPointerContext, address) == CUDA_SUCCESS && context &&
      of_context(context, &ordinal))
    return ordinal;
  return current_on(static_cast<uint32_t>(card < 0 ? 0 : card));
}

// The node itself says the card only.
uint32_t VirtualDevices::of_node(CUgraphNode node, int card) const {
  Allocation known;
  Client* client = current_client();
  if (client && client->table.find(Space::graph_node, reinterpret_cast<uint64_t>(node), &known)) return known.device;
  return current_on(static_cast<uint32_t>(card < 0 ? 0 : card));
}

}  // namespace berth::shim
