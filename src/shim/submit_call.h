// The guard of a submission: may it go now? With the gate open it costs one look at a word. While submissions are tracked
// they are gathered in batches by stream (streams.h); while they are held, a batch first waits on the device.
#pragma once
#include "shim/call.h"

namespace berth::shim {

struct StreamSlot;
struct Work;
struct Cost;

// What the name of a call tells.
struct CallFacts {
  bool per_thread;  // stream 0 means the calling thread's own
  bool completes;   // all earlier work of the stream is complete when it returns
};

class SubmitCall : public ClientCall {
 public:
  SubmitCall(CallFacts facts, const Work& work) {
    if (bypass()) return;
    const std::atomic<uint32_t>* word = __atomic_load_n(&berth_fork_page->gate, __ATOMIC_ACQUIRE);
    if (word && word->load(std::memory_order_acquire) != 0) [[unlikely]] begin(facts, work);
  }

  // Passes the driver's result on.
  CUresult done(CUresult result) {
    if (slot_) [[unlikely]] ended(result);
    return result;
  }

  // For a body that may make several submissions of its call, one behind the other, with nobody else's in between.
  // Does this one wait on the device, with others after it?
  bool is_held() const { return slot_ && (gate_ & wire::kGateHold); }
  const StreamSlot* slot() const { return slot_; }
  // What its length is known to be by now; 0: nothing is known.
  uint64_t known_ns() const;
  // Only while held, before anything has been submitted: this is `work`, the first of so many. False: it has to be one. Then
  // next() before each further one, and end_span() after the last.
  bool begin_span(const Work& work, uint32_t submissions);
  void next(CallFacts facts, const Work& work);
  void end_span();

 private:
  void begin(CallFacts facts, const Work& work);
  void ended(CUresult result);

  StreamSlot* slot_ = nullptr;
  StreamSlot* span_ = nullptr;
  Cost* cost_ = nullptr;
  uint32_t gate_ = 0;
  bool completes_ = false;
};

// A stream that is being captured, or that may not be asked because another is: what goes there is no work yet.
bool is_captured(CallFacts facts, CUstream stream);

}  // namespace berth::shim
