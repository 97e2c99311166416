// Modules and libraries: PTX texts whose kernels this GPU can compute.
#pragma once
#include <string>

#include "sim/kernels.h"
#include "sim/process.h"

namespace berth::sim {

struct Module {
  Context* context = nullptr;
  PhysicalRef memory;  // what its image costs
  std::vector<std::string> entries;
  bool of_library = false;
};

struct Function {
  std::shared_ptr<Module> module;
  const Kernel* kernel = nullptr;
  int dynamic_shared = 0, carveout = -1, cache_config = 0;
  // Of the old way to launch:
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> arguments;
};

// The function of a handle, which may be a CUkernel too; null: none, or of another context that has ended.
std::shared_ptr<Function> function_of(CUfunction handle, Context& context);
void drop_modules_of(Context& context);

}  // namespace berth::sim
