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
    if (slot_ && result == CUDA_SUCCESS) [[unlikely]] submitted();
    return result;
  }

 private:
  void begin(CallFacts facts, const Work& work);
  void submitted();

  StreamSlot* slot_ = nullptr;
  Cost* cost_ = nullptr;
  bool completes_ = false;
};

}  // namespace berth::shim
