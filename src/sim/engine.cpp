#include "sim/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>

#include "sim/process.h"
#include "sim/turns.h"

namespace berth::sim {
namespace {

constexpr int64_t kPollNs = 50'000;          // operations that wait for a memory word
constexpr int64_t kQueuePollNs = 1'000'000;  // for a turn, in case its holder was killed
constexpr int kOperationsAtOnce = 64;        // of one stream before the others are looked at

std::atomic<bool> sleeping{false};

// A thread that no signal of the program ever reaches.
template <class Body>
void start_thread(Body* body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(
      &thread, &attributes, [](void* argument) -> void* { return reinterpret_cast<Body*>(argument)(), nullptr; },
      reinterpret_cast<void*>(body));
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

struct Pass {
  bool progress = false;
  int64_t next = INT64_MAX;
};

void finish(Stream& stream) {
  stream.queue.front()->ticket->done = true;
  stream.queue.pop_front();
  if (stream.queue.empty()) stream.lane.debt_ns = 0;
  forget_if_drained(stream);
  process().done.notify_all();
}

bool may_start(const Operation& operation) {
  return std::all_of(operation.after.begin(), operation.after.end(),
                     [](const TicketRef& ticket) { return ticket->done; });
}

// Steps of one stream until it has to wait. The lock is free during each step.
void run_stream(Stream& stream, EngineView& view, Pass& pass, Lock& lock) {
  for (int i = 0; i < kOperationsAtOnce && !stream.queue.empty(); ++i) {
    Operation& operation = *stream.queue.front();
    if (!may_start(operation)) return;
    CUresult error = operation.context->error;
    lock.unlock();
    Step step{Step::complete};
    if (error)
      abandon(operation, error);
    else
      step = advance(operation, view, stream.lane);
    lock.lock();
    if (step.kind == Step::wait) {
      if (step.wants_card) view.cards[operation.context->device->card].wanted = true;
      pass.next = std::min(pass.next, step.until ? step.until : now_ns() + kPollNs);
      return;
    }
    pass.progress = true;
    if (step.kind == Step::more) return;
    if (step.kind == Step::failed)
      operation.context->error = step.error;
    else
      finish(stream);
  }
}

Pass run_all(EngineView& view) {
  Pass pass;
  Lock lock(process().mutex);
  auto round = process().busy;
  for (const StreamRef& stream : round) run_stream(*stream, view, pass, lock);
  std::erase_if(process().busy, [](const StreamRef& stream) { return stream->queue.empty(); });
  return pass;
}

// Before a pass: how long has this process had the card, and has it still?
void look_at_cards(CardClock* cards, int64_t now) {
  for (int i = 0; i < static_cast<int>(state().cards); ++i) {
    CardClock& card = cards[i];
    card.wanted = false;
    if (!card.held) continue;
    card.time += now - card.last;
    card.last = now;
    if (!has_turn(i))
      card.held = false;
    else if (now - card.slice_start >= kSliceNs) {
      if (others_wait(i)) {
        end_turn(i);
        card.held = false;
      } else {
        renew_turn(i);
        card.slice_start = now;
      }
    }
  }
}

// After a pass: take what is wanted, give back what is not.
void settle_cards(CardClock* cards, Pass& pass) {
  for (int i = 0; i < static_cast<int>(state().cards); ++i) {
    CardClock& card = cards[i];
    if (card.wanted && !card.held) {
      card.queued = !take_turn(i);
      int64_t now = now_ns();
      if (card.queued) {
        pass.next = std::min(pass.next, now + kQueuePollNs);
      } else {
        card.held = true;
        card.last = card.slice_start = now;
        pass.progress = true;
      }
    } else if (!card.wanted && card.held && !pass.progress) {
      end_turn(i);
      card.held = false;
    } else if (!card.wanted && card.queued) {
      leave_queue(i);
      card.queued = false;
    }
    if (card.held) pass.next = std::min(pass.next, card.slice_start + kSliceNs);
  }
}

struct Started {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int slot = -1;
};
Started& started() {
  static auto* const the_started = new Started;
  return *the_started;
}

void engine() {
  int slot = join_state();
  {
    std::lock_guard guard(started().mutex);
    started().slot = slot;
    started().done = true;
  }
  started().changed.notify_all();
  if (slot < 0) return;
  std::atomic<uint32_t>& wake = state().slots[slot].wake;
  CardClock cards[kMaxCards];
  for (;;) {
    uint32_t seen = wake.load(std::memory_order_acquire);
    int64_t now = now_ns();
    look_at_cards(cards, now);
    EngineView view{now, cards};
    Pass pass = run_all(view);
    settle_cards(cards, pass);
    if (pass.progress) continue;
    int64_t timeout = pass.next == INT64_MAX ? 3'600'000'000'000 : pass.next - now_ns();
    if (timeout <= 0) continue;
    sleeping = true;
    futex_wait(wake, seen, timeout);
    sleeping = false;
  }
}

struct Callbacks {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool running = false;
};
Callbacks& callbacks() {
  static auto* const the_callbacks = new Callbacks;
  return *the_callbacks;
}

thread_local bool on_callback_thread = false;

void callback_thread() {
  on_callback_thread = true;
  std::unique_lock lock(callbacks().mutex);
  for (;;) {
    callbacks().changed.wait(lock, [] { return !callbacks().queue.empty(); });
    auto function = std::move(callbacks().queue.front());
    callbacks().queue.pop_front();
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace

bool start_engine() {
  start_thread(engine);
  std::unique_lock lock(started().mutex);
  started().changed.wait(lock, [] { return started().done; });
  return started().slot >= 0;
}

void wake_engine() {
  std::atomic<uint32_t>& word = state().slots[own_slot()].wake;
  word.fetch_add(1);
  if (sleeping) futex_wake(word);
}

void call_back(std::function<void()> function) {
  std::lock_guard guard(callbacks().mutex);
  if (!callbacks().running) {
    callbacks().running = true;
    start_thread(callback_thread);
  }
  callbacks().queue.push_back(std::move(function));
  callbacks().changed.notify_one();
}

bool in_callback() { return on_callback_thread; }

void forget_if_drained(Stream& stream) {
  if (!stream.destroyed || !stream.queue.empty()) return;
  std::erase_if(stream.context->streams, [&](const StreamRef& each) { return each.get() == &stream; });
}

TicketRef submit(Stream& stream, std::unique_ptr<Operation> operation) {
  Context& context = *stream.context;
  operation->context = &context;
  operation->ticket = std::make_shared<Ticket>();
  auto come_after = [&](const TicketRef& ticket) {
    if (ticket && !ticket->done) operation->after.push_back(ticket);
  };
  if (stream.legacy) {
    for (const StreamRef& other : context.streams)
      if (other->blocking) come_after(other->tail);
  } else if (stream.blocking) {
    come_after(context.legacy->tail);
  }
  TicketRef ticket = stream.tail = operation->ticket;
  StreamRef self = stream.legacy ? context.legacy : process().streams.find(&stream);
  auto& busy = process().busy;
  if (std::find(busy.begin(), busy.end(), self) == busy.end()) busy.push_back(self);
  stream.queue.push_back(std::move(operation));
  wake_engine();
  return ticket;
}

// A point after all work of the context that the legacy stream would wait for.
TicketRef legacy_barrier(Context& context) {
  auto barrier = std::make_unique<Operation>();
  barrier->work = EmptyWork{};
  return submit(*context.legacy, std::move(barrier));
}

CUresult wait_for(Lock& lock, Context& context, const TicketRef& ticket) {
  if (ticket) process().done.wait(lock, [&] { return ticket->done; });
  return context.error;
}

CUresult wait_for_context(Lock& lock, Context& context) {
  std::vector<TicketRef> tails{context.legacy->tail};
  for (const StreamRef& stream : context.streams) tails.push_back(stream->tail);
  for (const TicketRef& tail : tails) wait_for(lock, context, tail);
  return context.error;
}

}  // namespace berth::sim
