// Several submissions of one call (streams.h, Spans): who may submit meanwhile.
#include "shim/client.h"
#include "shim/streams.h"

namespace berth::shim {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint64_t kSpanPatienceNs = 1'000'000'000;  // a thread that is stuck in the driver must not stop others for good

// The same stream, or ordered by the default stream of their context, which one of them is.
bool are_ordered(const StreamSlot& one, const StreamSlot& other) {
  if (&one == &other) return true;
  return one.context == other.context && ((!one.stream && other.blocking) || (!other.stream && one.blocking));
}

}  // namespace

bool Streams::others_span(const StreamSlot& slot) {
  uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const void* thread = slots_[i].span.load(std::memory_order_acquire);
    if (thread && thread != &guest_depth && are_ordered(slot, slots_[i])) return true;
  }
  return false;
}

// Counted before it waits: so no thread can begin one span after another and keep others out.
void Streams::enter(StreamSlot& slot) {
  ++slot.submitting;
  for (uint64_t until = 0; spans_.load(kRelaxed) && others_span(slot);) {
    uint64_t now = now_ns();
    if (until == 0) until = now + kSpanPatienceNs;
    if (now > until) return;
    slot.lock.unlock();
    sleep_ns(Activity::kPaceNs);
    slot.lock.lock();
  }
}

// Who enters a slot after we have had its lock sees the span; who has entered before is counted.
bool Streams::begin_span(StreamSlot& slot, Client& client, uint32_t submissions) {
  wait_for_room(slot, client, submissions);  // not within the span, where others would have to wait with us
  const void* nobody = nullptr;
  if (!slot.span.compare_exchange_strong(nobody, &guest_depth, std::memory_order_acq_rel)) return false;
  spans_.fetch_add(1, std::memory_order_acq_rel);
  bool alone = true;
  {
    Locked locked(lock_);  // no slot is made meanwhile
    for (StreamSlot& other : slots_) {
      if (!other.key.load(kRelaxed) || !are_ordered(slot, other)) continue;
      Locked its(other.lock);
      bool is_own = &other == &slot;
      alone &= other.submitting == (is_own ? 1 : 0) && (is_own || !other.span.load(kRelaxed));
    }
  }
  if (!alone) end_span(slot);
  return alone;
}

void Streams::end_span(StreamSlot& slot) {
  const void* own = &guest_depth;
  slot.span.compare_exchange_strong(own, nullptr, std::memory_order_acq_rel);
  spans_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace berth::shim
