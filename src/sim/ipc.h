// Memory of other processes.
#pragma once
#include "sim/process.h"

namespace berth::sim {

// The shared memory that a descriptor stands for; null: none, or gone.
PhysicalRef import_share(int fd);
int ordinal_of_card(int card);  // -1: not visible here

}  // namespace berth::sim
