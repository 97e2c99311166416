#include "sim/kernels.h"

#include <algorithm>
#include <cstring>

#include "sim/managed.h"
#include "sim/process.h"

namespace berth::sim {
namespace {

constexpr uint64_t kWordsAtOnce = 1u << 20;  // a step's worth

template <class T>
T argument(const std::byte* arguments, size_t offset) {
  T value;
  std::memcpy(&value, arguments + offset, sizeof value);
  return value;
}

uint32_t pattern(uint32_t seed, uint64_t index) {
  uint32_t x = static_cast<uint32_t>(index) * 2654435761u ^ seed;
  x ^= x >> 16;
  x *= 0x45d9f3bu;
  return x ^ (x >> 16);
}

bool usable(const Operation& operation, uint64_t address, uint64_t bytes) {
  Lock lock(process().mutex);
  return kernel_touch(*operation.context, address, bytes);
}

constexpr Step kIllegalAddress{Step::failed, 0, false, CUDA_ERROR_ILLEGAL_ADDRESS};
constexpr Step kNeedsCard{Step::wait, INT64_MAX, true};

// Works on [0, count) in pieces while the process has the card. `check` comes first, `piece(from, to)` for each.
template <class Check, class Piece>
Step in_pieces(Operation& operation, EngineView& view, uint64_t count, Check check, Piece piece) {
  if (!view.cards[operation.context->device->card].held) return kNeedsCard;
  if (!operation.begun) {
    if (!check()) return kIllegalAddress;
    operation.begun = true;
  }
  uint64_t from = operation.position, to = std::min(count, from + kWordsAtOnce);
  piece(from, to);
  operation.position = to;
  return {to == count ? Step::complete : Step::more};
}

Step fill(const std::byte* a, Operation& operation, EngineView& view, Lane&) {
  auto address = argument<uint64_t>(a, 0), words = argument<uint64_t>(a, 8);
  auto seed = argument<uint32_t>(a, 16);
  auto* data = reinterpret_cast<uint32_t*>(address);
  return in_pieces(
      operation, view, words, [&] { return words <= UINT64_MAX / 4 && usable(operation, address, words * 4); },
      [&](uint64_t from, uint64_t to) {
        for (uint64_t i = from; i < to; ++i) data[i] = pattern(seed, i);
      });
}

Step check(const std::byte* a, Operation& operation, EngineView& view, Lane&) {
  auto address = argument<uint64_t>(a, 0), words = argument<uint64_t>(a, 8), errors = argument<uint64_t>(a, 24);
  auto seed = argument<uint32_t>(a, 16);
  const auto* data = reinterpret_cast<const uint32_t*>(address);
  return in_pieces(
      operation, view, words,
      [&] { return words <= UINT64_MAX / 4 && usable(operation, address, words * 4) && usable(operation, errors, 4); },
      [&](uint64_t from, uint64_t to) {
        uint32_t wrong = 0;
        for (uint64_t i = from; i < to; ++i) wrong += data[i] != pattern(seed, i);
        if (wrong) __atomic_fetch_add(reinterpret_cast<uint32_t*>(errors), wrong, __ATOMIC_RELAXED);
      });
}

Step axpy(const std::byte* a, Operation& operation, EngineView& view, Lane&) {
  auto y_address = argument<uint64_t>(a, 0), x_address = argument<uint64_t>(a, 8), count = argument<uint64_t>(a, 24);
  auto factor = argument<float>(a, 16);
  auto* y = reinterpret_cast<float*>(y_address);
  const auto* x = reinterpret_cast<const float*>(x_address);
  return in_pieces(
      operation, view, count,
      [&] {
        return count <= UINT64_MAX / 4 && usable(operation, y_address, count * 4) &&
               usable(operation, x_address, count * 4);
      },
      [&](uint64_t from, uint64_t to) {
        for (uint64_t i = from; i < to; ++i) y[i] += factor * x[i];
      });
}

Step spin(const std::byte* a, Operation& operation, EngineView& view, Lane& lane) {
  auto duration = static_cast<int64_t>(std::min<uint64_t>(argument<uint64_t>(a, 0), INT64_MAX / 2));
  return pass_time(operation, view, lane, duration, true);
}

Step wait(const std::byte* a, Operation& operation, EngineView& view, Lane&) {
  auto address = argument<uint64_t>(a, 0);
  auto value = argument<uint32_t>(a, 8);
  if (!view.cards[operation.context->device->card].held) return kNeedsCard;
  if (!operation.begun && !usable(operation, address, 4)) return kIllegalAddress;
  operation.begun = true;
  if (__atomic_load_n(reinterpret_cast<const uint32_t*>(address), __ATOMIC_ACQUIRE) == value) return {Step::complete};
  return {Step::wait, 0, true};
}

const std::vector<Kernel>& kernels() {
  static const auto* const list = new std::vector<Kernel>{
      {"berth_fill", {8, 8, 4}, fill}, {"berth_check", {8, 8, 4, 8}, check}, {"berth_spin", {8}, spin},
      {"berth_wait", {8, 4}, wait},    {"berth_axpy", {8, 8, 4, 8}, axpy},
  };
  return *list;
}

}  // namespace

size_t Kernel::offset_of(size_t index) const {
  size_t offset = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    offset = (offset + parameters[i] - 1) / parameters[i] * parameters[i];
    if (i == index) return offset;
    offset += parameters[i];
  }
  return offset;
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kernels())
    if (name == kernel.name) return &kernel;
  return nullptr;
}

}  // namespace berth::sim
