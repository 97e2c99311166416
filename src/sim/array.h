// Arrays: rows without gaps in device memory. (A real card lays them out otherwise, and nobody can see it.)
#pragma once
#include "sim/process.h"

namespace berth::sim {

struct Array {
  Context* context = nullptr;
  uint64_t address = 0;
  bool own_memory = true;  // a level of a mipmap has none
  size_t row_bytes = 0;
  CUDA_ARRAY3D_DESCRIPTOR description{};

  size_t rows() const { return description.Height ? description.Height : 1; }
  size_t layers() const { return description.Depth ? description.Depth : 1; }
  size_t bytes() const { return row_bytes * rows() * layers(); }
};

std::shared_ptr<Array> array_of(CUarray handle);

}  // namespace berth::sim
