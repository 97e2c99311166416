#include "driver.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/paths.h"

namespace berth::load {
namespace {

constexpr const char* kSoname = "libcuda.so.1";
constexpr int kInterfaceVersion = 12000;  // the one whose newest variants the table's names stand for

bool on_library_path() {
  const char* value = std::getenv("LD_LIBRARY_PATH");
  std::string_view rest = value ? value : "";
  while (!rest.empty()) {
    std::string_view folder = rest.substr(0, rest.find_first_of(":;"));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (::access((std::string(folder.empty() ? "." : folder) + "/" + kSoname).c_str(), R_OK) == 0) return true;
  }
  return false;
}

bool is_berths_own(void* library) {
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map->l_name) return false;
  return std::string_view(map->l_name).ends_with("/berth/shim/libcuda.so.1");
}

void* open_library() {
  const char* chosen = std::getenv("BERTH_DRIVER");
  void* found = ::dlopen(kSoname, RTLD_NOW);
  if (found && (!chosen || !*chosen || on_library_path() || is_berths_own(found))) return found;
  if (chosen && *chosen) {
    if (found) ::dlclose(found);
    std::string path = chosen == std::string_view("sim") ? library_folder() + "/sim/" + kSoname : chosen;
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW)) return library;
    throw Error{"no_device", std::string("BERTH_DRIVER=") + chosen + " cannot be opened: " + ::dlerror()};
  }
  throw Error{"no_device", std::string("no CUDA driver here (") + ::dlerror() +
                               "); install NVIDIA's, or set BERTH_DRIVER=sim for the simulated GPU"};
}

void* find_entry(void* library, const char* name, Lookup lookup) {
  if (lookup == Lookup::dlsym) return ::dlsym(library, name);
  auto ask = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(::dlsym(library, "cuGetProcAddress_v2"));
  std::string_view base = name;
  if (base.ends_with("_v2")) base.remove_suffix(3);
  void* entry = nullptr;
  int status = 0;
  if (!ask || ask(std::string(base).c_str(), &entry, kInterfaceVersion, 0, &status) != CUDA_SUCCESS) return nullptr;
  return entry;
}

}  // namespace

std::string Driver::describe(CUresult code) const {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || !name) name = "an unknown error";
  return std::string(name) + " (" + std::to_string(static_cast<int>(code)) + ")";
}

Driver open_driver(Lookup lookup) {
  void* library = open_library();
  Driver driver;
#define X(name)                                                                          \
  driver.name = reinterpret_cast<decltype(&::name)>(find_entry(library, #name, lookup)); \
  if (!driver.name) throw Error{"internal", "the CUDA driver has no " #name "; berth-load needs driver 450 or newer"};
  BERTH_LOAD_CALLS(X)
#undef X
  return driver;
}

void must(const Driver& driver, CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw Error{"driver", std::string(call) + " answered " + driver.describe(code)};
}

}  // namespace berth::load
