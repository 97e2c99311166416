// Finding the runtime and our libcuda.so.1, and what the bodies share.
#include "shim/runtime_alias.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

namespace berth::shim::alias {
namespace {

constinit void* functions[abi::runtime::kRows] = {};

// The n-th loaded object whose file is called like a runtime: wheels rename theirs.
struct Search {
  int wanted;
  char path[PATH_MAX];
};
int look_at(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  const char* path = object->dlpi_name;
  const char* slash = path ? ::strrchr(path, '/') : nullptr;
  if (!slash || ::strncmp(slash + 1, "libcudart", 9) != 0 || ::strlen(path) >= sizeof search->path) return 0;
  if (search->wanted-- > 0) return 0;
  ::strcpy(search->path, path);
  return 1;
}

// Only what is loaded is asked, and then stays loaded: its addresses are kept. The newest first.
void* look_up(const char* name) {
  static constexpr const char* kFiles[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  for (const char* file : kFiles)
    if (void* runtime = ::dlopen(file, RTLD_LAZY | RTLD_NOLOAD))
      if (void* function = ::dlsym(runtime, name)) return function;
  for (int i = 0;; ++i) {
    Search search{i, ""};
    if (!::dl_iterate_phdr(look_at, &search)) break;
    void* runtime = ::dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
    if (void* function = runtime ? ::dlsym(runtime, name) : nullptr) return function;
  }
  return ::dlsym(RTLD_NEXT, name);
}

}  // namespace

constinit std::atomic<Seen> seen{Seen::unknown};
constinit const RuntimeView* view = nullptr;
constinit int count = 0, default_device = 0;

void* find(Row row) {
  void** function = &functions[static_cast<int>(row)];
  void* found = __atomic_load_n(function, __ATOMIC_ACQUIRE);
  if (found) return found;
  found = look_up(abi::runtime::kNames[static_cast<int>(row)]);
  if (found) __atomic_store_n(function, found, __ATOMIC_RELEASE);
  return found;
}

int runtime_version() {
  static constinit int version = 0;
  int known_version = __atomic_load_n(&version, __ATOMIC_RELAXED);
  if (known_version) return known_version;
  auto ask = reinterpret_cast<cudaError_t (*)(int*)>(look_up("cudaRuntimeGetVersion"));
  if (!ask || ask(&known_version) != cudaSuccess) return 0;
  __atomic_store_n(&version, known_version, __ATOMIC_RELAXED);
  return known_version;
}

cudaError_t no_function() { return runtime_version() ? cudaErrorNotSupported : cudaErrorInitializationError; }

// What every runtime does first, too: libcuda.so.1 is loaded and cuInit called. Several threads may get here at once and find
// the same.
bool look() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return false;
  auto get = reinterpret_cast<decltype(&::berth_shim_devices)>(::dlsym(driver, "berth_shim_devices"));
  const RuntimeView* found = get ? get(kRuntimeView) : nullptr;
  int devices = found ? found->start() : 0;
  if (devices < 0) return false;
  view = found;
  count = devices;
  seen.store(devices ? Seen::virtual_devices : Seen::cards, std::memory_order_release);
  return devices > 0;
}

int thread_device() {
  int device = view->current();
  if (device >= 0) return device;
  device = __atomic_load_n(&default_device, __ATOMIC_RELAXED);
  view->exchange(device);
  return device;
}

int on_card_of(int card) {
  int device = view->current();
  if (known(device) && view->card_of(device) == card) return device;
  for (int i = 0; i < count; ++i)
    if (view->card_of(i) == card) return i;
  return card;
}

int of_memory(const void* address, int card) {
  int device = view->of_memory(reinterpret_cast<CUdeviceptr>(address), card);
  return known(device) && view->card_of(device) == card ? device : on_card_of(card);
}

}  // namespace berth::shim::alias
