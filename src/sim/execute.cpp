#include "sim/execute.h"

#include <algorithm>
#include <cstring>

#include "sim/event.h"
#include "sim/graph_memory.h"
#include "sim/kernels.h"
#include "sim/managed.h"
#include "sim/pool.h"
#include "sim/process.h"
#include "sim/settings.h"

namespace berth::sim {
namespace {

constexpr uint64_t kBytesAtOnce = 16ull << 20;
constexpr double kHostBytesPerNs = 55, kDeviceBytesPerNs = 2000;
constexpr int64_t kExact = 20'000;  // an operation may be this much early; its stream owes the rest
constexpr int64_t kMaxCredit = 200'000;

constexpr Step kComplete{Step::complete};
constexpr Step kIllegalAddress{Step::failed, 0, false, CUDA_ERROR_ILLEGAL_ADDRESS};

int64_t clock_of(const Operation& operation, EngineView& view, bool on_card) {
  int64_t now = now_ns();
  CardClock& card = view.cards[operation.context->device->card];
  if (!on_card) return now;
  card.time += now - card.last;
  card.last = now;
  return card.time;
}

bool side_usable(const Side& side, const CopyWork& work, const Operation& operation) {
  if (!side.device || !work.width || !work.height || !work.depth) return true;
  uint64_t bytes = side.slice * (work.depth - 1) + side.pitch * (work.height - 1) + work.width;
  Lock lock(process().mutex);
  return device_touch(*operation.context->device, side.address, bytes);
}

bool stays_on_card(const CopyWork& work) {
  if (!work.from.device || !work.to.device) return false;
  Lock lock(process().mutex);
  const Range *from = find_range(work.from.address), *to = find_range(work.to.address);
  return !from || !to || from->device == to->device;
}

// Rows are numbered through all layers; one piece of them a step.
Step copy(CopyWork& work, Operation& operation, EngineView& view, Lane& lane) {
  uint64_t bytes = work.width * work.height * work.depth;
  double duration = 0;  // counts when the copy begins
  if (!operation.begun)
    duration = static_cast<double>(bytes) / (stays_on_card(work) ? kDeviceBytesPerNs : kHostBytesPerNs);
  if (!operation.begun && (!side_usable(work.from, work, operation) || !side_usable(work.to, work, operation)))
    return kIllegalAddress;
  uint64_t done = operation.position;
  bool flat = work.height * work.depth == 1;
  if (done < bytes) {
    if (!operation.begun) pass_time(operation, view, lane, static_cast<int64_t>(duration), false);
    uint64_t end = std::min(bytes, done + kBytesAtOnce);
    if (!flat) end = std::min(bytes, (end + work.width - 1) / work.width * work.width);
    while (done < end) {
      uint64_t row = flat ? 0 : done / work.width, piece = flat ? end - done : work.width;
      uint64_t in_row = flat ? done : 0;
      auto at = [&](const Side& side) {
        return reinterpret_cast<char*>(side.address + row / work.height * side.slice + row % work.height * side.pitch +
                                       in_row);
      };
      std::memmove(at(work.to), work.staged ? reinterpret_cast<const char*>(work.staged->data()) + done : at(work.from),
                   piece);
      done += piece;
    }
    operation.position = done;
    if (done < bytes) return {Step::more};
  }
  return pass_time(operation, view, lane, static_cast<int64_t>(duration), false);
}

void fill_row(char* row, unsigned value, unsigned element, size_t count) {
  if (element == 4 && count == 1)
    __atomic_store_n(reinterpret_cast<uint32_t*>(row), value, __ATOMIC_RELEASE);  // often a flag
  else if (element == 1)
    std::memset(row, static_cast<int>(value), count);
  else if (element == 2)
    std::fill_n(reinterpret_cast<uint16_t*>(row), count, static_cast<uint16_t>(value));
  else
    std::fill_n(reinterpret_cast<uint32_t*>(row), count, value);
}

Step fill(FillWork& work, Operation& operation, EngineView& view, Lane& lane) {
  uint64_t row_bytes = work.width * work.element, bytes = row_bytes * work.height;
  auto duration = static_cast<int64_t>(static_cast<double>(bytes) / kDeviceBytesPerNs);
  if (!operation.begun && bytes) {
    Lock lock(process().mutex);
    if (!device_touch(*operation.context->device, work.address, work.pitch * (work.height - 1) + row_bytes))
      return kIllegalAddress;
  }
  if (operation.position < work.height && bytes) {
    if (!operation.begun) pass_time(operation, view, lane, duration, false);
    uint64_t rows = std::max<uint64_t>(1, kBytesAtOnce / row_bytes);
    uint64_t end = std::min(work.height, operation.position + rows);
    for (; operation.position < end; ++operation.position)
      fill_row(reinterpret_cast<char*>(work.address + operation.position * work.pitch), work.value, work.element,
               work.width);
    if (operation.position < work.height) return {Step::more};
  }
  return pass_time(operation, view, lane, duration, false);
}

Step host(const HostWork& work, Operation& operation, CUresult status) {
  if (!operation.called_back) {
    auto done = operation.called_back = std::make_shared<std::atomic<bool>>(false);
    call_back([work, status, done] {
      if (work.callback)
        work.callback(work.stream, status, work.data);
      else
        work.function(work.data);
      *done = true;
      wake_engine();
    });
  }
  if (*operation.called_back) return kComplete;
  return {Step::wait, INT64_MAX};
}

Step wait_record(WaitWork& work) {
  Lock lock(process().mutex);
  if (!work.record) work.record = work.event ? work.event->record : nullptr;
  if (!work.record || is_complete(*work.record)) return kComplete;
  return {Step::wait, work.record->shared >= 0 ? 0 : INT64_MAX};  // another process does not wake us
}

template <class T>
bool satisfied(uint64_t address, uint64_t wanted, unsigned flags) {
  T value = __atomic_load_n(reinterpret_cast<const T*>(address), __ATOMIC_ACQUIRE), want = static_cast<T>(wanted);
  switch (flags & 3) {
    case 0:
      return static_cast<std::make_signed_t<T>>(value - want) >= 0;
    case 1:
      return value == want;
    case 2:
      return (value & want) != 0;
    default:
      return static_cast<T>(~(value | want)) != 0;
  }
}

Step values(const ValueWork& work, Operation& operation) {
  while (operation.position < work.operations.size()) {
    const ValueOperation& each = work.operations[operation.position];
    {
      Lock lock(process().mutex);
      if (!device_may_use(each.address, each.wide ? 8 : 4)) return kIllegalAddress;
    }
    if (each.write) {
      if (each.wide)
        __atomic_store_n(reinterpret_cast<uint64_t*>(each.address), each.value, __ATOMIC_RELEASE);
      else
        __atomic_store_n(reinterpret_cast<uint32_t*>(each.address), static_cast<uint32_t>(each.value),
                         __ATOMIC_RELEASE);
    } else if (!(each.wide ? satisfied<uint64_t>(each.address, each.value, each.flags)
                           : satisfied<uint32_t>(each.address, each.value, each.flags))) {
      return {Step::wait, 0};
    }
    ++operation.position;
  }
  return kComplete;
}

}  // namespace

Step pass_time(Operation& operation, EngineView& view, Lane& lane, int64_t duration, bool on_card) {
  if (on_card && !view.cards[operation.context->device->card].held) return {Step::wait, INT64_MAX, true};
  int64_t now = clock_of(operation, view, on_card);
  if (!operation.begun) {
    operation.begun = true;
    operation.begun_at = now;
    lane.debt_ns += static_cast<int64_t>(static_cast<double>(duration) / settings().speed);
  }
  int64_t elapsed = now - operation.begun_at, remaining = lane.debt_ns - elapsed;
  if (remaining > kExact) return {Step::wait, now_ns() + remaining, on_card};
  lane.debt_ns = std::max(remaining, -kMaxCredit);
  return kComplete;
}

Step advance(Operation& operation, EngineView& view, Lane& lane) {
  if (operation.graph) return advance_graph(*operation.graph, operation, view, lane);
  struct Visitor {
    Operation& operation;
    EngineView& view;
    Lane& lane;
    Step operator()(KernelWork& work) { return work.kernel->step(work.arguments.data(), operation, view, lane); }
    Step operator()(CopyWork& work) { return copy(work, operation, view, lane); }
    Step operator()(FillWork& work) { return fill(work, operation, view, lane); }
    Step operator()(HostWork& work) { return host(work, operation, CUDA_SUCCESS); }
    Step operator()(RecordWork& work) {
      Lock lock(process().mutex);
      complete_record(*work.record);
      return kComplete;
    }
    Step operator()(WaitWork& work) { return wait_record(work); }
    Step operator()(ValueWork& work) { return values(work, operation); }
    Step operator()(PoolFreeWork& work) {
      Lock lock(process().mutex);
      work.pool->finish_free(work.address, work.generation);
      return kComplete;
    }
    Step operator()(ManagedWork& work) {
      Lock lock(process().mutex);
      if (Range* range = find_range(work.address)) move_managed(*range, *operation.context->device, work.to_device);
      return kComplete;
    }
    Step operator()(GraphAllocWork& work) {  // the launch has given it its memory
      Lock lock(process().mutex);
      operation.context->device->graph_memory->allocated(work.address->start);
      return kComplete;
    }
    Step operator()(GraphFreeWork& work) {
      Lock lock(process().mutex);
      operation.context->device->graph_memory->free(work.address);
      return kComplete;
    }
    Step operator()(EmptyWork&) { return kComplete; }
    Step operator()(ChildWork&) { return kComplete; }  // instantiation has put the child's nodes in its place
  };
  return std::visit(Visitor{operation, view, lane}, operation.work);
}

void abandon(Operation& operation, CUresult error) {
  if (operation.graph) return abandon_graph(*operation.graph, operation, error);
  if (auto* record = std::get_if<RecordWork>(&operation.work)) {
    Lock lock(process().mutex);
    complete_record(*record->record);
  } else if (auto* freed = std::get_if<PoolFreeWork>(&operation.work)) {
    Lock lock(process().mutex);
    freed->pool->finish_free(freed->address, freed->generation);
  } else if (auto* called = std::get_if<HostWork>(&operation.work);
             called && called->callback && !operation.called_back) {
    call_back([work = *called, error] { work.callback(work.stream, error, work.data); });
  }
}

}  // namespace berth::sim
