// In what a driver of another version differs from the recorded one. The tests' older and newer drivers are the same objects,
// linked with a definition of their own (tests/system/drivers) and another list of exports.
#pragma once
#include <span>

namespace berth::sim {

// From this version on cuGetProcAddress hands out this export for the name.
struct NewerName {
  const char* name;
  int version;
  const char* symbol;
};

struct Variant {
  int cuda_version;
  std::span<const NewerName> newer;
};

Variant variant();

}  // namespace berth::sim
