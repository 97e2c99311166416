// NVML through dlopen: one library, opened once and kept.
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "abi/nvml_api.h"
#include "base/paths.h"
#include "daemon/gpu_source.h"
#include "policy/compute_mode.h"

namespace berth::daemon {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr unsigned kMaxProcesses = 4096;

bool same_file(const std::string& a, const std::string& b) {
  struct stat first, second;
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool is_ours(const std::string& path) { return same_file(path, library_folder() + "/shim/" + kLibrary); }

// Standard homes of the driver's libraries. They come before the loader's search, which may lead to our own library.
std::vector<std::string> candidates() {
  const char* driver = std::getenv("BERTH_DRIVER");
  if (driver && std::strcmp(driver, "sim") == 0) return {library_folder() + "/sim/" + kLibrary};
  if (driver && *driver) {
    std::string_view path = driver;
    if (path.find('/') == path.npos) return {};
    return {std::string(path.substr(0, path.rfind('/') + 1)) + kLibrary};
  }
  std::vector<std::string> paths;
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64",
        "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/lib/nvidia", "/run/opengl-driver/lib"})
    paths.push_back(std::string(folder) + "/" + kLibrary);
  for (std::string_view rest = std::getenv("LD_LIBRARY_PATH") ? std::getenv("LD_LIBRARY_PATH") : ""; !rest.empty();) {
    std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.empty()) paths.push_back(std::string(folder) + "/" + kLibrary);
  }
  paths.push_back(kLibrary);
  return paths;
}

std::string loaded_path(void* handle) {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

class NvmlSource : public GpuSource {
 public:
  Result<std::vector<GpuInfo>> open() override {
    if (auto status = load(); !status) return status.error();
    if (nvmlReturn_t code = init_(); code != NVML_SUCCESS) return Error{"no_device", silence(code)};
    unsigned count = 0;
    if (nvmlReturn_t code = count_of_(&count); code != NVML_SUCCESS)
      return Error{"no_device", "the NVIDIA driver does not count its devices: " + text_of(code)};
    std::vector<GpuInfo> infos;
    handles_.clear();
    uuids_.clear();
    for (unsigned i = 0; i < count; ++i) {
      nvmlDevice_t handle = nullptr;
      char uuid[96] = "", name[96] = "";
      uint64_t total = 0, used = 0;
      if (handle_of_(i, &handle) != NVML_SUCCESS || uuid_of_(handle, uuid, sizeof uuid) != NVML_SUCCESS ||
          !memory_of(handle, &total, &used))
        return Error{"no_device", "device " + std::to_string(i) + " does not answer; check it with nvidia-smi"};
      name_of_(handle, name, sizeof name);
      handles_.push_back(handle);
      uuids_.push_back(uuid);
      infos.push_back({uuid, name, total, compute_mode_of(handle)});
    }
    char version[96] = "";
    if (driver_version_) driver_version_(version, sizeof version);
    description_ = std::string("driver ") + version;
    if (infos.empty()) return Error{"no_device", "the NVIDIA driver has no device"};
    resting_ = false;
    return infos;
  }

  Result<std::vector<GpuReading>> read() override {
    if (resting_) {
      std::vector<std::string> before = std::move(uuids_);
      auto infos = open();
      if (!infos) return infos.error();
      if (before != uuids_) {
        uuids_ = std::move(before);
        rest();
        return Error{"internal", "the devices are others than before"};
      }
    }
    std::vector<GpuReading> readings;
    for (nvmlDevice_t handle : handles_) {
      // Memory and processes are two calls; a reading in which the processes changed meanwhile is taken again.
      GpuReading reading = list_processes(handle);
      for (int tries = 0; tries < 3; ++tries) {
        uint64_t total = 0, used = 0;
        if (!memory_of(handle, &total, &used)) return Error{"internal", "NVML no longer answers for a device"};
        GpuReading again = list_processes(handle);
        bool same = again.processes == reading.processes;
        reading = std::move(again);
        reading.used_bytes = used;
        reading.compute_mode = compute_mode_of(handle);
        if (same) break;
      }
      readings.push_back(std::move(reading));
    }
    return readings;
  }

  void rest() override {
    if (!library_ || resting_) return;
    resting_ = true;
    handles_.clear();
    shutdown_();
    ::dlclose(std::exchange(library_, nullptr));
  }

  std::string describe() const override { return description_; }

 private:
  Status load() {
    if (library_) return Ok{};
    std::string fault = "that is neither 'sim' nor a path";  // or that of the last candidate
    for (const std::string& path : candidates()) {
      if (is_ours(path)) continue;
      void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) {
        fault = ::dlerror();
        continue;
      }
      fault = path + " is berth's own or lacks functions of NVML";
      if (is_ours(loaded_path(handle))) continue;  // stays loaded, unused
      library_ = handle;
      bool whole = find(&init_, "nvmlInit_v2") && find(&shutdown_, "nvmlShutdown") && find(&count_of_, "nvmlDeviceGetCount_v2") &&
                   find(&handle_of_, "nvmlDeviceGetHandleByIndex_v2") && find(&uuid_of_, "nvmlDeviceGetUUID") &&
                   find(&name_of_, "nvmlDeviceGetName") && find(&memory_, "nvmlDeviceGetMemoryInfo");
      find(&driver_version_, "nvmlSystemGetDriverVersion");
      find(&error_text_, "nvmlErrorString");
      find(&memory_v2_, "nvmlDeviceGetMemoryInfo_v2");
      find(&compute_mode_, "nvmlDeviceGetComputeMode");
      if (!find(&compute_, "nvmlDeviceGetComputeRunningProcesses_v3"))
        find(&compute_, "nvmlDeviceGetComputeRunningProcesses_v2");
      if (!find(&graphics_, "nvmlDeviceGetGraphicsRunningProcesses_v3"))
        find(&graphics_, "nvmlDeviceGetGraphicsRunningProcesses_v2");
      if (whole) return Ok{};
      library_ = nullptr;
    }
    if (const char* chosen = std::getenv("BERTH_DRIVER"); chosen && *chosen)
      return Error{"no_device", std::string("BERTH_DRIVER=") + chosen + " names no driver: " +
                                    fault + "; set it to sim or to the path of a libcuda.so.1 that has a libnvidia-ml.so.1 " +
                                    "beside it, or unset it"};
    return Error{
        "no_device",
        std::string("no NVIDIA driver here (") + candidates().front() +
            " and the usual places have no usable library); install it, or set BERTH_DRIVER=sim for a simulated GPU"};
  }

  template <class F>
  bool find(F* function, const char* name) {
    *function = reinterpret_cast<F>(::dlsym(library_, name));
    return *function != nullptr;
  }

  std::string silence(nvmlReturn_t code) const {
    if (!same_file(loaded_path(library_), library_folder() + "/sim/" + kLibrary))
      return "the NVIDIA driver does not answer: " + text_of(code) + "; check that nvidia-smi works";
    const char* folder = std::getenv("BERTH_SIM_DIR");
    return "the simulated GPU cannot be made: " + text_of(code) + "; set BERTH_SIM_DIR" +
           (folder && *folder ? std::string(", now ") + folder + "," : "") + " to a folder that you can write to";
  }

  std::string text_of(nvmlReturn_t code) const {
    return error_text_ ? error_text_(code) : "error " + std::to_string(static_cast<int>(code));
  }

  // As the driver counts: without what it reserves, which only the second form tells apart and cuDeviceTotalMem leaves out.
  bool memory_of(nvmlDevice_t handle, uint64_t* total, uint64_t* used) const {
    nvmlMemory_v2_t memory{};
    memory.version = sizeof memory | 2u << 24;
    if (memory_v2_ && memory_v2_(handle, &memory) == NVML_SUCCESS && memory.reserved + memory.free <= memory.total) {
      *total = memory.total - memory.reserved;
      *used = *total - memory.free;
      return true;
    }
    nvmlMemory_t older{};
    if (memory_(handle, &older) != NVML_SUCCESS) return false;
    *total = older.total;
    *used = older.total - older.free;
    return true;
  }

  policy::ComputeMode compute_mode_of(nvmlDevice_t handle) const {
    int mode = 0;
    bool known = compute_mode_ && compute_mode_(handle, &mode) == NVML_SUCCESS;
    return known ? policy::compute_mode_of_driver(mode) : policy::ComputeMode::shared;
  }

  GpuReading list_processes(nvmlDevice_t handle) {
    GpuReading reading;
    bool compute = processes_of(handle, compute_, true, &reading), graphics = processes_of(handle, graphics_, false, &reading);
    reading.lists_processes = compute || graphics;
    return reading;
  }

  using ListProcesses = nvmlReturn_t (*)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
  bool processes_of(nvmlDevice_t handle, ListProcesses list, bool computes, GpuReading* reading) {
    if (!list) return false;
    nvmlReturn_t code;
    unsigned count;
    do {
      count = static_cast<unsigned>(scratch_.size());
      code = list(handle, &count, scratch_.data());
      if (code == NVML_ERROR_INSUFFICIENT_SIZE) scratch_.resize(std::min(kMaxProcesses, std::max(count, 16u) * 2));
    } while (code == NVML_ERROR_INSUFFICIENT_SIZE && count < kMaxProcesses);
    if (code != NVML_SUCCESS) return false;
    for (unsigned i = 0; i < count; ++i) {
      policy::ProcessUse use{static_cast<pid_t>(scratch_[i].pid), scratch_[i].usedGpuMemory, computes};
      if (scratch_[i].usedGpuMemory == ~0ull) use.bytes.reset();
      bool twice = false;  // a process that computes and draws is in both lists, with the same figure
      for (const policy::ProcessUse& other : reading->processes) twice |= other.pid == use.pid;
      if (!twice) reading->processes.push_back(use);
    }
    return true;
  }

  void* library_ = nullptr;
  bool resting_ = false;
  std::vector<nvmlDevice_t> handles_;
  std::vector<std::string> uuids_;
  std::vector<nvmlProcessInfo_t> scratch_ = std::vector<nvmlProcessInfo_t>(64);
  std::string description_;
  decltype(&nvmlInit_v2) init_ = nullptr;
  decltype(&nvmlShutdown) shutdown_ = nullptr;
  decltype(&nvmlDeviceGetCount_v2) count_of_ = nullptr;
  decltype(&nvmlDeviceGetHandleByIndex_v2) handle_of_ = nullptr;
  decltype(&nvmlDeviceGetUUID) uuid_of_ = nullptr;
  decltype(&nvmlDeviceGetName) name_of_ = nullptr;
  decltype(&nvmlDeviceGetMemoryInfo) memory_ = nullptr;
  decltype(&nvmlDeviceGetMemoryInfo_v2) memory_v2_ = nullptr;
  decltype(&nvmlDeviceGetComputeMode) compute_mode_ = nullptr;
  decltype(&nvmlSystemGetDriverVersion) driver_version_ = nullptr;
  decltype(&nvmlErrorString) error_text_ = nullptr;
  ListProcesses compute_ = nullptr, graphics_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuSource> make_nvml_source() { return std::make_unique<NvmlSource>(); }

bool parse_uuid(std::string_view text, policy::Uuid* uuid) {
  if (!text.starts_with("GPU-")) return false;
  size_t digits = 0;
  uuid->fill(0);
  for (char c : text.substr(4)) {
    if (c == '-') continue;
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (value < 0 || digits >= 32) return false;
    (*uuid)[digits / 2] = static_cast<uint8_t>((*uuid)[digits / 2] << 4 | value);
    ++digits;
  }
  return digits == 32;
}

}  // namespace berth::daemon
