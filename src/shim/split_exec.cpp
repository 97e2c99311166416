#include "shim/split_exec.h"

#include "shim/driver.h"
#include "shim/streams.h"
#include "shim/submit_call.h"
#include "shim/work.h"

namespace berth::shim {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
// Each part has a learned length of its own, and the table of these has room for other work, too.
constexpr uint32_t kMostPartsOfAll = 1024;

class InContext {
 public:
  explicit InContext(CUcontext context) {
    CUcontext current = nullptr;
    real::cuCtxGetCurrent(&current);
    pushed_ = current != context && real::cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  }
  ~InContext() {
    CUcontext popped;
    if (pushed_) real::cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_;
};

}  // namespace

CUresult SplitExec::launch(SubmitCall& call, CUresult (*real)(CUgraphExec, CUstream), CUstream stream) {
  const CallFacts facts{real == &real::cuGraphLaunch_ptsz, false};
  const bool capturing = berth_fork_page->captures.load(kRelaxed) != 0;
  if (capturing && is_captured(facts, stream)) return real(exec_, stream);  // becomes a node, of the whole
  Locked order(order_);
  Launch launch{facts, real, stream, 0, false, false};
  // A stream's id is never that of another one. While there is a capture it must not be asked for.
  launch.known = !capturing && real::cuStreamGetId(plain_stream(facts, stream), &launch.stream_id) == CUDA_SUCCESS;
  launch.elsewhere = last_ != Last::none && (!launch.known || !last_is_known_ || launch.stream_id != last_stream_id_);
  bool in_parts = can_use_parts(call, launch) && call.begin_span(work_of_part(0, stream), part_count_);
  return in_parts ? launch_parts(call, launch) : launch_whole(call, launch);
}

bool SplitExec::can_use_parts(SubmitCall& call, const Launch& launch) {
  if (state_ == State::whole || !call.is_held() || (launch.elsewhere && !marked_)) return false;
  if (state_ == State::parts) return call.slot()->context == event_context_;
  return has_parts(call, launch);
}

// Makes them, once it is known that the graph is long. Parts of about half the length that may run at once: batches gather
// as many as fit, and uneven ones fit, too.
bool SplitExec::has_parts(SubmitCall& call, const Launch& launch) {
  Client& client = call.client();
  const StreamSlot& slot = *call.slot();
  if (event_ && slot.context != event_context_) return false;
  const wire::DaemonPage* page = client.page();
  uint64_t longest = page ? page->split_ns.load(kRelaxed) : 0, known = call.known_ns();
  if (longest == 0 || known < longest + longest / 2) return false;
  uint64_t wanted = 2 * known / longest;
  for (uint64_t most : {uint64_t{kMostParts}, uint64_t{node_count_}})
    if (wanted > most) wanted = most;
  if (!count_parts(client, static_cast<uint32_t>(wanted))) return false;
  InContext in(slot.context);
  if (!has_event(slot) || !make_parts(parts_counted_, plain_stream(launch.facts, launch.stream))) {
    log_line("a graph of %u nodes cannot be split", node_count_);
    drop(client);
    return false;
  }
  count_parts(client, part_count_);
  state_ = State::parts;
  // What they take on the device is overhead, which only NVML knows.
  if (uint32_t account; current_device(&account)) client.refresh(account);
  return true;
}

// Of the process, with this many here. False: too many.
bool SplitExec::count_parts(Client& client, uint32_t parts) {
  uint32_t more = parts - parts_counted_;  // modulo 2^32
  if (client.split_parts.fetch_add(more, kRelaxed) + more > kMostPartsOfAll && parts > parts_counted_) {
    client.split_parts.fetch_sub(more, kRelaxed);
    return false;
  }
  parts_counted_ = parts;
  return true;
}

bool SplitExec::has_event(const StreamSlot& slot) {
  if (event_) return slot.context == event_context_;
  InContext in(slot.context);
  if (real::cuEventCreate(&event_, abi::kEventDisableTiming) != CUDA_SUCCESS) event_ = nullptr;
  event_context_ = event_ ? slot.context : nullptr;
  return event_ != nullptr;
}

Work SplitExec::work_of_part(uint32_t part, CUstream stream) const {
  Work work = work_of(abi::driver::Row::cuGraphLaunch, exec_);
  work_parts::mix(work, part + 1);
  work.stream = stream;
  return work;
}

void SplitExec::note(const Launch& launch, Last last, bool mark) {
  roams_ |= launch.elsewhere;
  last_ = last;
  last_stream_id_ = launch.stream_id;
  last_is_known_ = launch.known;
  marked_ = mark && real::cuEventRecord(event_, plain_stream(launch.facts, launch.stream)) == CUDA_SUCCESS;
}

CUresult SplitExec::launch_whole(SubmitCall& call, const Launch& launch) {
  if (last_ == Last::parts && launch.elsewhere && marked_)
    real::cuStreamWaitEvent(plain_stream(launch.facts, launch.stream), event_, 0);
  CUresult result = launch.real(exec_, launch.stream);
  if (result != CUDA_SUCCESS) return result;
  bool mark = state_ != State::whole && call.is_held() && (roams_ || launch.elsewhere) && has_event(*call.slot());
  note(launch, Last::whole, mark);
  return result;
}

// Nothing of another thread comes in between, and a part's launch takes nothing of the device that it has not taken before
// (they are uploaded): if one fails all the same, the context has.
CUresult SplitExec::launch_parts(SubmitCall& call, const Launch& launch) {
  CUresult result = launch.elsewhere ? real::cuStreamWaitEvent(plain_stream(launch.facts, launch.stream), event_, 0) : CUDA_SUCCESS;
  uint32_t part = 0;
  for (; result == CUDA_SUCCESS && part < part_count_; ++part) {
    if (part > 0) call.next(launch.facts, work_of_part(part, launch.stream));
    result = launch.real(parts_[part].exec, launch.stream);
  }
  if (result == CUDA_SUCCESS || part > 1) note(launch, Last::parts, true);
  call.end_span();
  if (result == CUDA_SUCCESS) return result;
  log_line("part %u of a graph cannot be launched: %d", part, static_cast<int>(result));
  drop(call.client());
  return part > 1 ? result : launch_whole(call, launch);
}

// The event stays: the next launch may have to wait for parts that are under way.
void SplitExec::drop(Client& client) {
  count_parts(client, 0);
  part_count_ = 0;
  drop_graphs();
  state_ = State::whole;
}

void SplitExec::discard(Client& client, bool context_is_gone) {
  {
    Locked order(order_);
    if (!context_is_gone) {
      drop(client);
      if (event_) real::cuEventDestroy_v2(event_);
    } else {
      count_parts(client, 0);
    }
  }
  unmap_pages(this, bytes_);
}

void graph_instantiated(Client& client, CUgraphExec exec, CUgraph graph) {
  const wire::DaemonPage* page = client.page();
  if (!page || page->split_ns.load(kRelaxed) == 0 || berth_fork_page->captures.load(kRelaxed)) return;
  if (SplitExec* split = SplitExec::make(exec, graph)) put_split(client, exec, split);
}

SplitExec* split_of(Client& client, CUgraphExec exec) {
  Allocation entry;
  bool found = client.has_splits.load(kRelaxed) && client.table.find(Space::split, reinterpret_cast<uint64_t>(exec), &entry);
  return found ? reinterpret_cast<SplitExec*>(entry.link) : nullptr;
}

SplitExec* take_split(Client& client, CUgraphExec exec) {
  Allocation entry;
  bool found = client.has_splits.load(kRelaxed) && client.table.remove(Space::split, reinterpret_cast<uint64_t>(exec), &entry);
  return found ? reinterpret_cast<SplitExec*>(entry.link) : nullptr;
}

void put_split(Client& client, CUgraphExec exec, SplitExec* split) {
  if (SplitExec* old = take_split(client, exec)) old->discard(client, true);  // its instance has gone without a word
  Allocation entry;
  entry.space = Space::split;
  entry.key = reinterpret_cast<uint64_t>(exec);
  entry.link = reinterpret_cast<uint64_t>(split);
  if (!client.table.insert(entry)) return split->discard(client, false);
  client.has_splits.store(true, kRelaxed);
}

void forget_splits(Client& client, CUcontext context) {
  Allocation gone;
  auto of_context = [&](const Allocation& entry) {
    return entry.space == Space::split && reinterpret_cast<SplitExec*>(entry.link)->needs(context);
  };
  while (client.has_splits.load(kRelaxed) && client.table.remove_if(of_context, &gone))
    reinterpret_cast<SplitExec*>(gone.link)->discard(client, true);
}

}  // namespace berth::shim
