// What the command line of berth-load says.
#pragma once
#include <cstdint>
#include <string>

#include "driver.h"
#include "memory.h"

namespace berth::load {

struct Options {
  std::string mode = "check";
  bool json = false;
  uint64_t bytes = 0;  // 0: the mode's own default
  uint64_t step = 0;   // size of one allocation; 0: everything at once
  double seconds = 5;
  Kind kind = Kind::linear;
  int device = 0;
  uint32_t seed = 1;
  Lookup lookup = Lookup::dlsym;
  // alloc
  bool grow = false;
  uint64_t write = 1 << 20;  // pattern at either end of an allocation
  // infer, train
  double rate = 50;
  int kernels = 0;  // 0: the mode's own default
  int kernel_us = 0;
  bool graph = false;
};

}  // namespace berth::load
