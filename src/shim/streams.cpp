#include "shim/streams.h"

#include "abi/generated/driver_real.h"
#include "shim/client.h"
#include "shim/submit_call.h"
#include "shim/virtual_devices.h"

namespace berth::shim {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint32_t kTooManyFailures = 16;  // of our own operations: then this process is no longer tracked
constexpr uint64_t kDefaultWindowNs = 200'000;
constexpr unsigned kWaitUntilAtLeast = 0;  // CU_STREAM_WAIT_VALUE_GEQ
constexpr unsigned kPortableAndMapped = 3;
const CUstream kPerThread = reinterpret_cast<CUstream>(2);

bool is_default(CUstream stream) { return reinterpret_cast<uint64_t>(stream) <= 2; }
CUdeviceptr shown_address(const StreamSlot& slot) {
  return slot.address + static_cast<uint64_t>(reinterpret_cast<char*>(slot.shown) - reinterpret_cast<char*>(slot.page));
}
bool reached(uint32_t now, uint32_t batch) { return static_cast<int32_t>(now - batch) >= 0; }

}  // namespace

CUstream plain_stream(CallFacts facts, CUstream stream) {
  if (!stream && facts.per_thread) return kPerThread;
  return reinterpret_cast<uint64_t>(stream) == 1 ? nullptr : stream;
}

Streams* Streams::of(Client& client) {
  wire::ActivityPage* page = client.activity.page();
  if (!page) return nullptr;
  Streams* streams = client.streams.load(std::memory_order_acquire);
  if (!streams) {
    void* memory = map_pages(sizeof(Streams));
    if (!memory) return nullptr;
    auto* fresh = static_cast<Streams*>(memory);  // all zero is an empty table
    if (client.streams.compare_exchange_strong(streams, fresh, std::memory_order_acq_rel)) streams = fresh;
    else unmap_pages(memory, sizeof(Streams));
  }
  if (streams->failures_.load(kRelaxed) > kTooManyFailures) return nullptr;
  if (__atomic_load_n(&streams->page_, __ATOMIC_ACQUIRE) != page && !streams->adopt(page)) return nullptr;
  return streams;
}

// The first page, that of a new connection, or one whose registration went with its context.
bool Streams::adopt(wire::ActivityPage* page) {
  Locked locked(lock_);
  if (page_ == page) return true;
  for (StreamSlot& slot : slots_) free(slot, false);
  count_.store(0, std::memory_order_release);
  CUcontext context = nullptr;
  bool registered = real::cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
                    real::cuMemHostRegister_v2(page, sizeof(wire::ActivityPage), kPortableAndMapped) == CUDA_SUCCESS &&
                    real::cuMemHostGetDevicePointer_v2(&address_, page, 0) == CUDA_SUCCESS;
  if (!registered) {
    if (context) failures_.fetch_add(1, kRelaxed);
    log_line("cannot show the activity page to the device");
    return false;
  }
  registered_in_ = context;
  __atomic_store_n(&page_, page, __ATOMIC_RELEASE);
  return true;
}

// Stream handles are unique in a process; default streams belong to a context, or to a thread and a context.
uint64_t Streams::key_of(CallFacts facts, CUstream stream, CUcontext* context) {
  CUstream one = plain_stream(facts, stream);
  if (!is_default(one)) return reinterpret_cast<uint64_t>(one);
  if (real::cuCtxGetCurrent(context) != CUDA_SUCCESS || !*context) return 0;
  uint64_t key = reinterpret_cast<uint64_t>(*context) * 2 + 1;  // odd: no handle
  if (one == kPerThread) key ^= reinterpret_cast<uint64_t>(&guest_depth) << 16;
  return key;
}

StreamSlot* Streams::look_up(uint64_t key) {
  uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i)
    if (slots_[i].key.load(std::memory_order_acquire) == key) return &slots_[i];
  return nullptr;
}

StreamSlot* Streams::known(CallFacts facts, CUstream stream) {
  CUcontext context = nullptr;
  uint64_t key = key_of(facts, stream, &context);
  return key ? look_up(key) : nullptr;
}

StreamSlot* Streams::find(CallFacts facts, CUstream stream) {
  CUcontext context = nullptr;
  uint64_t key = key_of(facts, stream, &context);
  if (!key) return nullptr;
  StreamSlot* slot = look_up(key);
  return slot ? slot : make(key, facts, stream, context);
}

StreamSlot* Streams::make(uint64_t key, CallFacts facts, CUstream stream, CUcontext context) {
  CUstream one = plain_stream(facts, stream);
  if (!context && real::cuStreamGetCtx(one, &context) != CUDA_SUCCESS) return nullptr;
  CUcontext current = nullptr;
  CUdevice device = 0;
  real::cuCtxGetCurrent(&current);
  bool pushed = current != context && real::cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  bool found = real::cuCtxGetDevice(&device) == CUDA_SUCCESS;
  if (pushed) real::cuCtxPopCurrent_v2(&current);
  if (!found || device < 0 || device >= static_cast<int>(wire::kMaxDevices)) return nullptr;
  unsigned flags = 0;
  if (!is_default(one) && real::cuStreamGetFlags(one, &flags) != CUDA_SUCCESS) flags = 0;

  Locked locked(lock_);
  StreamSlot* slot = page_ ? spare(one, context) : nullptr;
  if (!slot) return nullptr;
  auto at = static_cast<uint32_t>(slot - slots_);
  slot->stream = one;
  slot->context = context;
  slot->device = card_of(static_cast<uint32_t>(device));
  slot->blocking = !(flags & abi::kStreamNonBlocking);
  slot->submitting = 0;
  slot->page = page_;
  slot->address = address_;
  slot->shown = &page_->slots[at];
  slot->window_ns = kDefaultWindowNs;
  slot->batches = slot->retired = slot->shown->submitted.load(kRelaxed);
  slot->shown->device.store(slot->device, kRelaxed);
  slot->key.store(key, std::memory_order_release);
  if (at >= count_.load(kRelaxed)) {
    count_.store(at + 1, std::memory_order_release);
    if (page_->slot_count.load(kRelaxed) < at + 1) page_->slot_count.store(at + 1, std::memory_order_release);
  }
  return slot;
}

// A slot whose marks have all been written: a late one must not meet the numbers of the next stream. When all are in use,
// the slot of a thread's own default stream that has been idle for long: threads end without a word.
StreamSlot* Streams::spare(CUstream stream, CUcontext context) {
  auto idle = [&](uint32_t at) {
    const wire::ActivitySlot& shown = page_->slots[at];
    return shown.completed.load(std::memory_order_acquire) == shown.submitted.load(kRelaxed);
  };
  for (uint32_t at = 0; at < wire::kActivitySlots; ++at)
    if (!slots_[at].key.load(kRelaxed) && idle(at)) return &slots_[at];
  if (stream != kPerThread) return nullptr;
  uint64_t now = now_ns();
  for (uint32_t at = 0; at < wire::kActivitySlots; ++at)
    if (slots_[at].stream == kPerThread && slots_[at].context == context && idle(at) &&
        now - page_->slots[at].last_ns.load(kRelaxed) > 1'000'000'000)
      return &slots_[at];
  return nullptr;
}

// Lengths of completed batches go on the account.
void Streams::retire(StreamSlot& slot) {
  uint32_t completed = slot.shown->completed.load(std::memory_order_acquire);
  if (completed == slot.retired || !reached(slot.batches, completed)) return;
  uint64_t sum = 0, longest = 0;
  for (; slot.retired != completed; ++slot.retired) {
    uint64_t length = slot.lengths_ns[(slot.retired + 1) % StreamSlot::kRing];
    sum += length;
    if (length > longest) longest = length;
  }
  wire::ActivityDevice& device = slot.page->devices[slot.device];
  device.service_ns.fetch_add(sum, kRelaxed);
  uint64_t before = device.batch_ns.load(kRelaxed);
  device.batch_ns.store(longest > before ? longest : before - (before - longest) / 64, kRelaxed);
}

// A ring that is full would mean that the device is far behind; the driver's own queue is shorter than this.
void Streams::wait_for_room(StreamSlot& slot, Client& client, uint32_t batches) {
  while (slot.batches - slot.shown->completed.load(std::memory_order_acquire) > StreamSlot::kRing - 8 - batches &&
         client.activity.page() == slot.page)
    sleep_ns(Activity::kPaceNs);
}

void Streams::begin(StreamSlot& slot, Client& client, uint32_t gate, Cost* cost) {
  wait_for_room(slot, client, 0);
  uint32_t number = 0;
  bool opens = false;
  {
    Locked locked(slot.lock);
    enter(slot);
    retire(slot);
    if (!slot.shown->open.load(kRelaxed)) {
      opens = true;
      if (const wire::PageCard* rules = client.card(slot.device))
        if (uint64_t window = rules->window_ns.load(kRelaxed)) slot.window_ns = window;
      number = slot.batches + 1;
      slot.length_ns = 0;
      slot.content.clear();
      slot.measure = nullptr;
      uint64_t now = now_ns();
      slot.shown->last_ns.store(now, kRelaxed);
      slot.shown->due_ns.store(now + CostTable::length_ns(cost), kRelaxed);
      // From here on others see us busy, before the driver has anything.
      slot.shown->open.store(1, std::memory_order_seq_cst);
    }
  }
  if (!opens) return;
  if (gate & wire::kGateHold) {
    client.activity.wake();
    CUdeviceptr go = slot.address + offsetof(wire::ActivityPage, devices) + slot.device * sizeof(wire::ActivityDevice);
    if (real::cuStreamWaitValue32_v2(slot.stream, go, 1, kWaitUntilAtLeast) != CUDA_SUCCESS) failures_.fetch_add(1, kRelaxed);
    if (gate & wire::kGateStarted)
      real::cuStreamWriteValue32_v2(slot.stream, shown_address(slot) + offsetof(wire::ActivitySlot, started), number, 0);
  }
  Locked locked(slot.mark_lock);
  take_measures(slot);
  begin_measure(slot, cost);
}

void Streams::submitted(StreamSlot& slot, Cost* cost, bool completes) {
  Snapshot snapshot{};
  bool close = false;
  Measure* measure = nullptr;
  {
    Locked locked(slot.lock);
    uint64_t length = CostTable::length_ns(cost), now = now_ns();
    wire::ActivitySlot& shown = *slot.shown;
    ++slot.submissions;
    if (slot.submitting) --slot.submitting;
    slot.length_ns += length;
    slot.content.add(cost);
    uint64_t due = shown.due_ns.load(kRelaxed);
    shown.due_ns.store((due > now ? due : now) + length, kRelaxed);
    shown.last_ns.store(now, kRelaxed);
    slot.page->devices[slot.device].submissions.fetch_add(1, kRelaxed);
    snapshot = {slot.submissions, slot.batches};
    // Where the program waited for its work the last time, it will wait again: with a mark there the device itself says when
    // the work is complete, and it is measured however short it was thought to be.
    bool ends = slot.length_ns >= slot.window_ns || !CostTable::is_known(cost) || slot.submissions - slot.waited_at == slot.cycle;
    if (!completes && ends && shown.open.load(kRelaxed)) {
      close = true;
      ++slot.batches;
      slot.lengths_ns[slot.batches % StreamSlot::kRing] =
          static_cast<uint32_t>(slot.length_ns > 4'000'000'000 ? 4'000'000'000 : slot.length_ns);
      measure = slot.measure;
      if (measure) {
        measure->content = slot.content;
        measure->batch = slot.batches;
        measure->submitting_ns = now - measure->opened_ns;
      }
      slot.measure = nullptr;
      // In this order, so that nobody sees us idle in between.
      shown.submitted.store(slot.batches, std::memory_order_seq_cst);
      shown.open.store(0, std::memory_order_release);
    }
  }
  if (close) mark(slot, measure);
  if (completes) after(slot, snapshot);
}

void Streams::refused(StreamSlot& slot) {
  Locked locked(slot.lock);
  if (slot.submitting) --slot.submitting;
}

void Streams::mark(StreamSlot& slot, Measure* measure) {
  Locked locked(slot.mark_lock);
  if (measure && measure->state == Measure::open)
    measure->state = real::cuEventRecord(measure->end, slot.stream) == CUDA_SUCCESS ? Measure::under_way : Measure::idle;
  uint32_t number = slot.shown->submitted.load(std::memory_order_acquire);
  CUdeviceptr address = shown_address(slot) + offsetof(wire::ActivitySlot, completed);
  if (real::cuStreamWriteValue32_v2(slot.stream, address, number, 0) == CUDA_SUCCESS) return;
  failures_.fetch_add(1, kRelaxed);
  slot.shown->completed.store(number, std::memory_order_release);
}

// Every batch at first, later one in eight, and those that begin with something new.
void Streams::begin_measure(StreamSlot& slot, const Cost* cost) {
  bool is_new = cost && !CostTable::is_known(cost);
  if (slot.batches > 256 && slot.batches % 8 != 0 && !is_new) return;
  for (Measure& measure : slot.measures) {
    if (measure.state != Measure::idle) continue;
    if (!measure.end && (real::cuEventCreate(&measure.begin, 0) != CUDA_SUCCESS || real::cuEventCreate(&measure.end, 0) != CUDA_SUCCESS))
      return;
    if (real::cuEventRecord(measure.begin, slot.stream) != CUDA_SUCCESS) {
      measure.begin = measure.end = nullptr;  // of another context: they went with it
      return;
    }
    measure.state = Measure::open;
    measure.opened_ns = now_ns();
    Locked locked(slot.lock);
    slot.measure = &measure;
    return;
  }
}

void Streams::take_measures(StreamSlot& slot) {
  for (Measure& measure : slot.measures) {
    if (measure.state != Measure::under_way || !reached(slot.shown->completed.load(std::memory_order_acquire), measure.batch)) continue;
    float milliseconds = 0;
    CUresult result = real::cuEventElapsedTime(&milliseconds, measure.begin, measure.end);
    if (result == CUDA_ERROR_NOT_READY) continue;
    auto measured = static_cast<uint64_t>(milliseconds * 1e6f);
    if (result == CUDA_SUCCESS && measured) CostTable::learn(measure.content, measured, measure.submitting_ns);
    measure.state = Measure::idle;
  }
}

Streams::Snapshot Streams::before(StreamSlot& slot) {
  Locked locked(slot.lock);
  return {slot.submissions, slot.batches};
}

// What was submitted before is complete. The device has written all its marks by now, so none can undo ours.
void Streams::after(StreamSlot& slot, Snapshot snapshot) {
  Locked locked(slot.lock);
  wire::ActivitySlot& shown = *slot.shown;
  if (!reached(shown.completed.load(std::memory_order_acquire), snapshot.batches) && reached(slot.batches, snapshot.batches))
    shown.completed.store(snapshot.batches, std::memory_order_release);
  retire(slot);
  if (slot.submissions != snapshot.submissions) return;
  if (slot.submissions != slot.waited_at) {
    slot.cycle = slot.submissions - slot.waited_at;
    slot.waited_at = slot.submissions;
  }
  if (!shown.open.load(kRelaxed)) return;
  slot.page->devices[slot.device].service_ns.fetch_add(slot.length_ns, kRelaxed);
  if (slot.measure) slot.measure->state = Measure::idle;
  slot.measure = nullptr;
  slot.length_ns = 0;
  shown.started.store(slot.batches, kRelaxed);
  shown.open.store(0, std::memory_order_release);
}

// Marks that are on their way are still written, and the slot is not used again before (spare); without its context nothing
// will write them.
void Streams::free(StreamSlot& slot, bool context_is_gone) {
  if (!slot.key.load(kRelaxed)) return;
  Locked locked(slot.lock);
  slot.key.store(0, std::memory_order_release);
  for (Measure& measure : slot.measures) {
    measure.state = Measure::idle;
    if (context_is_gone) measure.begin = measure.end = nullptr;
  }
  slot.measure = nullptr;
  slot.submitting = 0;
  if (context_is_gone) slot.shown->completed.store(slot.shown->submitted.load(kRelaxed), std::memory_order_release);
  slot.shown->open.store(0, std::memory_order_release);
}

void Streams::forget_stream(CUstream stream) {
  if (is_default(stream)) return;
  Locked locked(lock_);
  for (StreamSlot& slot : slots_)
    if (slot.key.load(kRelaxed) == reinterpret_cast<uint64_t>(stream)) free(slot, false);
}

void Streams::forget_context(CUcontext context) {
  Locked locked(lock_);
  for (StreamSlot& slot : slots_)
    if (slot.context == context) free(slot, true);
  if (registered_in_ == context) __atomic_store_n(&page_, nullptr, __ATOMIC_RELEASE);  // the registration has gone, too
}

}  // namespace berth::shim
