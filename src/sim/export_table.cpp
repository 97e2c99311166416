// Export tables, the profiler's switch, and what tests may ask the simulated driver.
#include <cstring>
#include <iterator>

#include "sim/call.h"
#include "sim/test_interface.h"

using namespace berth::sim;

namespace {

// A table is its size in bytes and functions. The real ones are private to NVIDIA; these only have to stay what they
// are.
constexpr int kTables = 3, kFunctions = 7;
struct Table {
  size_t bytes;
  CUresult (*functions[kFunctions])();
};

template <int Number>
CUresult private_function() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <int First>
constexpr Table make_table() {
  return {
      sizeof(Table),
      {private_function<First>, private_function<First + 1>, private_function<First + 2>, private_function<First + 3>,
       private_function<First + 4>, private_function<First + 5>, private_function<First + 6>}};
}
constexpr Table kTheTables[kTables] = {make_table<0>(), make_table<10>(), make_table<20>()};

// "berth-sim-table0" to "berth-sim-table2".
constexpr char kTableName[] = "berth-sim-table";

}  // namespace

extern "C" {

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  SIM_CALL(kNothing);
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  int number = id->bytes[15] - '0';
  *table = nullptr;
  if (std::memcmp(id->bytes, kTableName, 15) != 0 || number < 0 || number >= kTables) return CUDA_ERROR_NOT_FOUND;
  *table = &kTheTables[number];
  return CUDA_SUCCESS;
}

CUresult cuProfilerStart() {
  SIM_CALL(kContext);
  return CUDA_SUCCESS;
}

CUresult cuProfilerStop() {
  SIM_CALL(kContext);
  return CUDA_SUCCESS;
}

// How often the function was called in this process.
uint64_t berth_sim_calls(const char* name) { return calls_of(name); }

// The stream that the last call with a stream meant: null the legacy one, 2 the calling thread's default stream.
void* berth_sim_last_stream() { return last_stream(); }

}  // extern "C"
