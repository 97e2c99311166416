// The kernels that the simulated GPU can compute, by name; everything else in a module is unknown to it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/engine.h"

namespace berth::sim {

struct Kernel {
  const char* name;
  std::vector<size_t> parameters;  // their sizes, in order, each naturally aligned
  Step (*step)(const std::byte* arguments, Operation&, EngineView&, Lane&);

  size_t offset_of(size_t index) const;
  size_t arguments_bytes() const { return offset_of(parameters.size()); }
};

// Null: not one of ours.
const Kernel* find_kernel(std::string_view name);

}  // namespace berth::sim
