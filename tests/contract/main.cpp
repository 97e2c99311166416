// contract [SECTION]: prints the trace of one section, or the names of all.
#include <string_view>

#include "sections.h"

namespace contract {
const Section kSections[] = {
    {"before_init", before_init}, {"linear", linear}, {"managed", managed}, {"pools", pools}, {"vmm", vmm}, {"arrays", arrays},
    {"contexts", contexts}, {"streams", streams}, {"captures", captures}, {"graphs", graphs}, {"graph_memory", graph_memory},
    {"graph_parts", graph_parts}, {"launches", launches}, {"copies", copies}, {"lookups", lookups},
};
const int kSectionCount = sizeof kSections / sizeof kSections[0];
}  // namespace contract

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a crash must not take what was seen with it
  for (const auto& section : contract::kSections) {
    if (argc < 2) std::printf("%s\n", section.name);
    else if (std::string_view(argv[1]) == section.name) return section.run(), 0;
  }
  return argc < 2 ? 0 : 2;
}
