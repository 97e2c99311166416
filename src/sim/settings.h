// What the environment asks of the simulated GPU. Read once, at the first call; the only place of src/sim that does.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::sim {

struct Settings {
  std::string folder;                  // BERTH_SIM_DIR: the processes that name one folder share its cards
  // One value for all cards, or a list of one each, separated by commas, whose last goes for all further cards. A list is
  // as good as BERTH_SIM_GPUS; empty where nobody says.
  std::vector<uint64_t> memory;        // BERTH_SIM_MEMORY, 16G where nobody says
  std::vector<int> compute_modes;      // BERTH_SIM_COMPUTE_MODE as CUcomputemode: default, exclusive, prohibited
  std::optional<unsigned> cards;       // BERTH_SIM_GPUS; else as many as the longer list; 1 where nobody says
  uint64_t context_bytes;              // BERTH_SIM_CONTEXT: what a context costs
  std::optional<int64_t> exit_ns;      // BERTH_SIM_EXIT_MS: from noticing a death to freeing its memory
  double speed;                        // BERTH_SIM_SPEED: 2 makes kernels and copies take half their time
  std::string faults;                  // BERTH_SIM_FAULTS, see faults.h
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES; the management library ignores it
};

const Settings& settings();

// The value of a list for a card.
template <class T>
T for_card(const std::vector<T>& list, size_t card, T otherwise) {
  return list.empty() ? otherwise : list[card < list.size() ? card : list.size() - 1];
}

inline constexpr unsigned kDefaultCards = 1;
inline constexpr uint64_t kDefaultMemory = 16ull << 30;
inline constexpr int64_t kDefaultExitNs = 20'000'000;
inline constexpr uint64_t kDefaultContext = 518ull << 20;  // recorded on the H200: what NVML lists for one context

}  // namespace berth::sim
