// Copies of all shapes as plain work.
#pragma once
#include "sim/work.h"

namespace berth::sim {

// The work of a copy description; INVALID_VALUE for memory that is not what the description says.
CUresult make_copy(const CUDA_MEMCPY3D& description, CopyWork* work);
CUresult make_copy(const CUDA_MEMCPY2D& description, CopyWork* work);
CUresult make_copy(const CUDA_MEMCPY3D_PEER& description, CopyWork* work);

enum class Place { host, device, by_address };
CUresult make_linear_copy(uint64_t to, Place to_place, uint64_t from, Place from_place, uint64_t bytes, CopyWork* work);

}  // namespace berth::sim
