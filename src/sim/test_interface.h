// What the simulated driver exports for tests besides the driver's own functions.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
uint64_t berth_sim_calls(const char* name);
void* berth_sim_last_stream();
void berth_sim_name_node(void* node, int type);
void berth_sim_last_attributes(void* buffer, size_t size);
}
