// What the environment asks of the simulated GPU. Read once, at the first call; the only place of src/sim that does.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace berth::sim {

struct Settings {
  std::string folder;                  // BERTH_SIM_DIR: the processes that name one folder share its cards
  std::optional<unsigned> cards;       // BERTH_SIM_GPUS, 1 where nobody says
  std::optional<uint64_t> memory;      // BERTH_SIM_MEMORY, for each card, 16G where nobody says
  uint64_t context_bytes;              // BERTH_SIM_CONTEXT: what a context costs
  std::optional<int64_t> exit_ns;      // BERTH_SIM_EXIT_MS: from noticing a death to freeing its memory
  double speed;                        // BERTH_SIM_SPEED: 2 makes kernels and copies take half their time
  std::string faults;                  // BERTH_SIM_FAULTS, see faults.h
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; the management library ignores it
};

const Settings& settings();

inline constexpr unsigned kDefaultCards = 1;
inline constexpr uint64_t kDefaultMemory = 16ull << 30;
inline constexpr int64_t kDefaultExitNs = 20'000'000;
inline constexpr uint64_t kDefaultContext = 518ull << 20;  // recorded on the H200: what NVML lists for one context

}  // namespace berth::sim
