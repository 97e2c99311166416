#include <dlfcn.h>

#include "abi/nvml_api.h"
#include "cli/doctor.h"
#include "cli/probe.h"
#include "client/driver_files.h"

namespace berth::cli {
namespace {

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

Json device_json(void* library, unsigned index) {
  nvmlDevice_t device = nullptr;
  Json result{{"index", index}};
  auto by_index = find<decltype(nvmlDeviceGetHandleByIndex_v2)>(library, "nvmlDeviceGetHandleByIndex_v2");
  if (!by_index || by_index(index, &device) != NVML_SUCCESS) return result;
  char text[96] = {};
  if (auto name = find<decltype(nvmlDeviceGetName)>(library, "nvmlDeviceGetName"); name && name(device, text, sizeof text) == 0)
    result["name"] = text;
  if (auto uuid = find<decltype(nvmlDeviceGetUUID)>(library, "nvmlDeviceGetUUID"); uuid && uuid(device, text, sizeof text) == 0)
    result["uuid"] = text;
  nvmlMemory_t memory{};
  if (auto info = find<decltype(nvmlDeviceGetMemoryInfo)>(library, "nvmlDeviceGetMemoryInfo"); info && info(device, &memory) == 0)
    result["total_bytes"] = memory.total;
  nvmlMemory_v2_t apart{};  // tells what the driver reserves, which is in no program's total
  apart.version = sizeof apart | 2u << 24;
  if (auto info = find<decltype(nvmlDeviceGetMemoryInfo_v2)>(library, "nvmlDeviceGetMemoryInfo_v2"); info && info(device, &apart) == 0)
    result["total_bytes"] = apart.total - apart.reserved;
  int mode = 0;
  if (auto get = find<decltype(nvmlDeviceGetComputeMode)>(library, "nvmlDeviceGetComputeMode"); get && get(device, &mode) == 0)
    result["compute_mode"] = mode;
  unsigned mig = 0, pending = 0;
  if (auto get = find<decltype(nvmlDeviceGetMigMode)>(library, "nvmlDeviceGetMigMode"); get && get(device, &mig, &pending) == 0)
    result["mig"] = mig != 0;
  return result;
}

// In the child.
std::string ask_nvml(const std::string& path) {
  Json result = Json::object();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return Json{{"fault", std::string("cannot load it: ") + ::dlerror()}}.dump();
  auto init = find<decltype(nvmlInit_v2)>(library, "nvmlInit_v2");
  auto count = find<decltype(nvmlDeviceGetCount_v2)>(library, "nvmlDeviceGetCount_v2");
  if (!init || !count) return Json{{"fault", path + " lacks functions of NVML"}}.dump();
  if (nvmlReturn_t code = init(); code != NVML_SUCCESS) {
    auto text = find<decltype(nvmlErrorString)>(library, "nvmlErrorString");
    return Json{{"fault", std::string("NVML can't start: ") + (text ? text(code) : std::to_string(code).c_str())}}.dump();
  }
  char version[96] = {};
  auto get = find<decltype(nvmlSystemGetDriverVersion)>(library, "nvmlSystemGetDriverVersion");
  if (get && get(version, sizeof version) == NVML_SUCCESS) result["driver_version"] = version;
  unsigned devices = 0;
  count(&devices);
  for (unsigned i = 0; i < devices; ++i) result["devices"].push_back(device_json(library, i));
  return result.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

NvmlView read_nvml() {
  NvmlView view;
  client::DriverFiles files = client::find_driver_files();
  if (files.nvml.empty()) {
    view.fault = "there is no libnvidia-ml.so.1";
    return view;
  }
  view.library = files.nvml.front();
  auto text = probe([&] { return ask_nvml(view.library); }, std::chrono::seconds(20));
  Json answer = text ? Json::parse(*text, nullptr, false) : Json();
  if (!answer.is_object()) {
    view.fault = view.library + " can't be used: " + (text ? "it says nothing" : text.error().message);
    return view;
  }
  view.fault = answer.value("fault", "");
  view.driver_version = answer.value("driver_version", "");
  for (const Json& device : answer.value("devices", Json::array()))
    view.devices.push_back({device.value("index", 0u), device.value("name", "unknown"), device.value("uuid", ""),
                            device.value("total_bytes", uint64_t{0}), device.value("compute_mode", 0), device.value("mig", false)});
  return view;
}

}  // namespace berth::cli
