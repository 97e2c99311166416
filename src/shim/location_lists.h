// Lists in which programs name virtual devices, as the driver and the runtime are handed them: copies that live until the call has
// returned, so that the program's own stay as they are. Guest-safe.
#pragma once
#include <string.h>

#include "abi/driver_types.h"
#include "shim/guest.h"
#include "wire/guest_protocol.h"

namespace berth::shim {

// Accesses by virtual device: several on one card become one, the widest.
struct Accesses {
  CUmemAccessDesc list[wire::kMaxDevices];
  size_t count = 0;
  bool fits = true;

  // `on_card` maps a location.
  template <class OnCard>
  Accesses(const CUmemAccessDesc* given, size_t size, OnCard on_card) {
    for (size_t i = 0; given && i < size; ++i) {
      CUmemAccessDesc one = given[i];
      one.location = on_card(one.location);
      size_t at = 0;
      while (at < count && ::memcmp(&list[at].location, &one.location, sizeof one.location) != 0) ++at;
      if (at < count) {
        if (one.flags > list[at].flags) list[at].flags = one.flags;
      } else if (count < wire::kMaxDevices) {
        list[count++] = one;
      } else {
        fits = false;
      }
    }
  }
};

// A program's list with each entry changed; `list` is the program's own where there is nothing to copy, or no memory for it.
template <class Struct>
class Changed {
 public:
  template <class Change>
  Changed(Struct* given, size_t size, Change change) : list(given), bytes_(size * sizeof(Struct)) {
    if (!given || !size) return;
    Struct* copy = size <= kFew ? few_ : static_cast<Struct*>(map_pages(bytes_));
    if (!copy) return;
    for (size_t i = 0; i < size; ++i) change(copy[i] = given[i]);
    list = copy;
    mapped_ = copy != few_;
  }
  ~Changed() {
    if (mapped_) unmap_pages(list, bytes_);
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

  Struct* list;

 private:
  static constexpr size_t kFew = 4;
  Struct few_[kFew];
  size_t bytes_;
  bool mapped_ = false;
};

// Where a copy's operands are said to lie.
template <class OnCard>
void change_hints_of(CUmemcpyAttributes& attributes, OnCard on_card) {
  attributes.srcLocHint = on_card(attributes.srcLocHint);
  attributes.dstLocHint = on_card(attributes.dstLocHint);
}
template <class OnCard>
void change_operands_of(CUDA_MEMCPY3D_BATCH_OP& copy, OnCard on_card) {
  for (CUmemcpy3DOperand* operand : {&copy.src, &copy.dst})
    if (operand->type == abi::kMemcpyOperandPointer) operand->op.ptr.locHint = on_card(operand->op.ptr.locHint);
}

// A memory node's parameters for the call.
struct AllocOnCard {
  CUDA_MEM_ALLOC_NODE_PARAMS copy;
  Accesses cards;
  template <class OnCard>
  AllocOnCard(const CUDA_MEM_ALLOC_NODE_PARAMS& given, OnCard on_card)
      : copy(given), cards(given.accessDescs, given.accessDescCount, on_card) {
    copy.poolProps.location = on_card(copy.poolProps.location);
    if (given.accessDescs && cards.fits) copy.accessDescs = cards.list, copy.accessDescCount = cards.count;
  }
};

}  // namespace berth::shim
