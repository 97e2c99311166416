// Records what cuGetProcAddress answers, as rows of src/abi/driver.versions: for each base name and stream flavour the lowest
// version from which an export is handed out. Run on the plain real driver; on the shim the same rows must come out.
#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "abi/driver_api.h"
#include "abi/generated/driver_names.h"

int main() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::printf("no driver: %s\n", dlerror()), 2;
  auto look = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"))(0);
  std::map<void*, std::string> exports;
  std::set<std::string> bases;
  int shared = 0, unknown = 0;
  for (const char* name : berth::abi::kDriverNames) {
    void* address = dlsym(library, name);
    if (!address) continue;
    shared += !exports.emplace(address, name).second;
    std::string base = std::regex_replace(name, std::regex("_pt(sz|ds)$"), "");
    bases.insert(base);
    bases.insert(std::regex_replace(base, std::regex("_v[0-9]+$"), ""));
  }
  static constexpr int kVersions[] = {2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,  4010,  4020,  5000,  5050,
                                      6000,  6050,  7000,  7050,  8000,  9000,  9010,  9020,  10000, 10010, 10020, 11000,
                                      11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030,
                                      12040, 12050, 12060, 12070, 12080, 12090, 13000};
  for (const std::string& base : bases)
    for (uint64_t flags : {1, 2}) {
      std::string last = "-";
      for (int version : kVersions) {
        void* pointer = nullptr;
        int status = 0;
        std::string now = "-";
        if (look(base.c_str(), &pointer, version, flags, &status) == CUDA_SUCCESS && pointer) {
          auto found = exports.find(pointer);
          now = found == exports.end() ? "?" : found->second;
          unknown += found == exports.end();
        }
        if (now != last) std::printf("%s %d %d %s\n", base.c_str(), static_cast<int>(flags), version, now.c_str());
        last = now;
      }
    }
  std::fprintf(stderr, "%zu exports, %d with an address of another, %d answers that are no export\n", exports.size(), shared, unknown);
}
