// The streams of this process while its submissions are tracked: which batch is open on each, what it is made of, what the
// device has completed. One table a process, made when the daemon first asks for tracking; shared by all threads.
//
// Nothing is ever put into a stream except by a thread that is submitting to that stream itself, right before or after its own
// call: a stream that the program destroys cannot be touched by us afterwards, the right context is current, and a thread's
// own default stream is only used by that thread.
//
// Marks. After a batch the device writes its number into the activity page (cuStreamWriteValue32). A held batch first waits on
// the device until ActivityDevice::go is 1 (cuStreamWaitValue32): measured on an H200, a stream that waits so costs its
// neighbours nothing, and both together take 4 us of device time and 1.9 us of the caller's a batch.
//
// Spans. One call may make several submissions (split_exec.h). While a thread does so, no other thread submits to that stream,
// nor to one that is ordered with it through the context's default stream: what was one call stays one step for them.
#pragma once
#include "abi/driver_types.h"
#include "shim/cost_table.h"
#include "shim/guest.h"
#include "wire/activity_page.h"

namespace berth::shim {

class Client;
struct CallFacts;

// A batch whose length is being measured, by two events of the driver around it.
struct Measure {
  CUevent begin, end;
  uint32_t batch;  // its number
  enum State : uint32_t { idle, open, under_way } state;
  uint64_t opened_ns, submitting_ns;  // when it was opened; how long the caller took to submit it
  BatchContent content;
};

struct StreamSlot {
  static constexpr uint32_t kMeasures = 4;
  static constexpr uint32_t kRing = 256;  // a power of two; more batches than this are never outstanding

  std::atomic<uint64_t> key;  // 0: free
  CUstream stream;            // as the driver's plain entries want it
  CUcontext context;
  uint32_t device;
  bool blocking;              // ordered with the context's default stream
  wire::ActivityPage* page;
  CUdeviceptr address;        // of the page, for the device
  wire::ActivitySlot* shown;  // in the page
  std::atomic<const void*> span;  // the thread that is making several submissions of one call here, or null

  GuestLock lock;         // what follows; never held over a call of the driver
  uint32_t submitting;    // calls that have begun here and not ended
  uint64_t length_ns;     // of the open batch, as far as known
  uint32_t waited_at;     // `submissions` when the program last waited for all of them
  uint32_t cycle;         // how many it had submitted since it had waited before; 0: it never waited
  uint64_t window_ns;
  uint32_t submissions;   // ever
  uint32_t batches;       // ever
  uint32_t retired;       // completed batches whose length is on the account
  BatchContent content;   // of the open batch
  Measure* measure;       // of the open batch, or null
  Measure measures[kMeasures];
  uint32_t lengths_ns[kRing];

  GuestLock mark_lock;  // held over our own calls around a batch, so that numbers reach the device in order: submitters only,
                        // and never while `lock` is held
};

// As the driver's plain entries want the stream of a call.
CUstream plain_stream(CallFacts facts, CUstream stream);

class Streams {
 public:
  // Null if there is none and none can be had.
  static Streams* of(Client& client);

  // The slot of the stream that a call is about; null when all are in use.
  StreamSlot* find(CallFacts facts, CUstream stream);
  // The same, but makes none.
  StreamSlot* known(CallFacts facts, CUstream stream);

  // `gate`: the bits of the daemon page's gate word.
  void begin(StreamSlot& slot, Client& client, uint32_t gate, Cost* cost);
  void submitted(StreamSlot& slot, Cost* cost, bool completes);
  void refused(StreamSlot& slot);  // the driver has

  // Around several submissions of one call, within the first: none of another thread gets in between. False: one of another
  // thread is under way, so this call must be one submission.
  bool begin_span(StreamSlot& slot, Client& client, uint32_t submissions);
  void end_span(StreamSlot& slot);

  // For synchronisations: `before` the driver's call, and `after` its success: what had been submitted is complete.
  struct Snapshot {
    uint32_t submissions, batches;
  };
  Snapshot before(StreamSlot& slot);
  void after(StreamSlot& slot, Snapshot snapshot);
  template <class Visit>
  void for_each(CUcontext context, Visit visit) {
    uint32_t count = count_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i)
      if (slots_[i].key.load(std::memory_order_acquire) && slots_[i].context == context) visit(slots_[i]);
  }

  void forget_stream(CUstream stream);
  void forget_context(CUcontext context);

  CostTable costs;

 private:
  bool adopt(wire::ActivityPage* page);
  uint64_t key_of(CallFacts facts, CUstream stream, CUcontext* context);
  StreamSlot* look_up(uint64_t key);
  StreamSlot* make(uint64_t key, CallFacts facts, CUstream stream, CUcontext context);
  StreamSlot* spare(CUstream stream, CUcontext context);  // lock_ held
  void retire(StreamSlot& slot);                          // the slot's lock held
  void wait_for_room(StreamSlot& slot, Client& client, uint32_t batches);
  void enter(StreamSlot& slot);           // the slot's lock held, and released while it waits
  bool others_span(const StreamSlot& slot);
  void begin_measure(StreamSlot& slot, const Cost* cost);
  void take_measures(StreamSlot& slot);
  void mark(StreamSlot& slot, Measure* measure);
  void free(StreamSlot& slot, bool context_is_gone);  // lock_ held

  GuestLock lock_;  // making and freeing slots, the page
  wire::ActivityPage* page_;
  CUdeviceptr address_;  // of the page, for the device
  CUcontext registered_in_;
  std::atomic<uint32_t> failures_;
  std::atomic<uint32_t> spans_;  // under way
  std::atomic<uint32_t> count_;
  StreamSlot slots_[wire::kActivitySlots];
};

}  // namespace berth::shim
