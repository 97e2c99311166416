#include "sim/identity.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "base/size.h"

#include "sim/shared_state.h"

namespace berth::sim {
namespace {

// By number of CUdevice_attribute, from 1 on; those of an H200 where something asks for them. Compute mode and bus are
// per card.
constexpr int kAttributes[] = {
    0,        1024,       1024,    1024,    64,    2147483647, 65535,   65535,
    49152,    65536,  //   0: block, grid, shared, constant
    32,       2147483647, 65536,   1980000, 512,   1,          132,     0,
    0,        1,  //  10: warp, pitch, registers, clock
    0,        131072,     131072,  65536,   16384, 16384,      16384,   32768,
    32768,    2048,  //  20: compute mode, textures
    512,      1,          1,       0,       0,     0,          3201000, 6144,
    62914560, 2048,  //  30: concurrent kernels, ECC, bus, L2
    3,        1,          32768,   2048,    0,     32768,      32768,   16384,
    16384,    32768,  //  40: copy engines, unified addressing
    0,        32,         32768,   32768,   2046,  32768,      131072,  65536,
    16384,    16384,  //  50: domain, texture pitch
    16384,    32768,      2048,    32768,   32768, 2048,       32768,   32768,
    2046,     268435456,  // 60: surfaces
    131072,   65000,      2097120, 32768,   32768, 9,          0,       32768,
    1,        1,  //  70: compute capability, priorities
    1,        233472,     65536,   1,       0,     0,          0,       2,
    0,        1,  //  80: shared, managed, pageable
    1,        0,          0,       0,       0,     1,          0,       232448,
    1,        1,  //  90: cooperative, opt-in shared
    0,        0,          1,       1,       0,     0,          32,      0,
    41287680, 134217728,  // 100: VMM, descriptors
    0,        1024,       0,       0,       0,     1,          0,       0,
    0,        1,  // 110: memory pools
    0,        0,          1,       1,       0,     1,          4,       1,
    0,        1,  // 120: clusters, memory operations
    0,        -1,         0,       0,       0,     0,          0,       0,
    0,        0,                                                            // 130: NUMA, multicast
    0,        0,          0,       0,       0,     1,          0,       0,  // 140
};

}  // namespace

std::string device_name(int card) {
  const State& s = state();
  bool alike = std::all_of(s.card, s.card + s.cards, [&](const Card& each) { return each.memory == s.card[0].memory; });
  return std::string("berth simulated GPU") + (alike ? "" : " " + format_size(s.card[card].memory));
}

std::string uuid_text(int card) {
  const unsigned char* b = state().card[card].uuid;
  char text[48];
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

std::string pci_text(int card, bool wide_domain) {
  char text[32];
  std::snprintf(text, sizeof text, wide_domain ? "00000000:%02X:00.0" : "0000:%02X:00.0", kFirstBus + card);
  return text;
}

int card_of_pci_text(const char* text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
    domain = function = 0;
    if (std::sscanf(text, "%x:%x.%x", &bus, &device, &function) < 2) return -1;
  }
  int card = static_cast<int>(bus) - kFirstBus;
  bool known = domain == 0 && device == 0 && function == 0 && card >= 0 && card < static_cast<int>(state().cards);
  return known ? card : -1;
}

bool device_attribute(int card, int attribute, int* value) {
  if (attribute < 1 || attribute >= static_cast<int>(std::size(kAttributes))) return false;
  *value = attribute == 33   ? kFirstBus + card
           : attribute == 20 ? state().card[card].compute_mode
                             : kAttributes[attribute];
  return true;
}

}  // namespace berth::sim
