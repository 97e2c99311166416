#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "abi/generated/driver_names.h"
#include "base/size.h"
#include "cli/doctor.h"
#include "cli/exports.h"
#include "cli/probe.h"
#include "client/driver_files.h"

namespace berth::cli {
namespace {

constexpr const char* kNoDevice =
    "no GPU can be used here; install NVIDIA's driver, or set BERTH_DRIVER=sim to try berth on a simulated one";

// "/usr/lib/libcuda.so.580.159.04" -> "580.159.04"; "" without a version.
std::string version_in(const std::string& path) {
  size_t at = path.rfind(".so.");
  std::string tail = at == std::string::npos ? "" : path.substr(at + 4);
  return tail.find('.') == std::string::npos ? "" : tail;
}

std::string several(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (++shown > 3) break;
    text += (text.empty() ? "" : ", ") + name;
  }
  return names.size() > 3 ? text + " and " + std::to_string(names.size() - 3) + " more" : text;
}

Check check_names(const std::string& library) {
  auto exported = exported_functions(library);
  if (!exported) return {"driver functions", Health::failed, exported.error().message, "reinstall the driver"};
  std::set<std::string> known(std::begin(abi::kDriverNames), std::end(abi::kDriverNames)), unknown, missing;
  for (const std::string& name : *exported)
    if (name.rfind("cu", 0) == 0 && name.rfind("cudbg", 0) != 0 && !known.count(name)) unknown.insert(name);
  for (const std::string& name : known)
    if (!exported->count(name)) missing.insert(name);
  std::string count = std::to_string(known.size() - missing.size()) + " of " + std::to_string(known.size()) + " known to berth";
  if (!unknown.empty())
    return {"driver functions", Health::warning, count + "; the driver is newer and has " + several(unknown),
            "programs that use those are shown as partly covered; a newer berth knows them"};
  if (!missing.empty())
    return {"driver functions", Health::ok, count + "; the driver is older and lacks " + several(missing), ""};
  return {"driver functions", Health::ok, count, ""};
}

// Another library between programs and the driver would undo, or be undone by, ours.
void add_rivals(Checks* checks) {
  for (const char* word : {"libvgpu", "libnvshare", "libcuda"}) {
    const char* preload = std::getenv("LD_PRELOAD");
    if (preload && std::string(preload).find(word) != std::string::npos)
      checks->push_back({"LD_PRELOAD", Health::warning, preload, "it comes before berth's library: unset it"});
  }
}

void add_mps(Checks* checks) {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::string control = std::string(folder ? folder : "/tmp/nvidia-mps") + "/control";
  if (::access(control.c_str(), F_OK) == 0)
    checks->push_back({"MPS", Health::warning, "an MPS daemon is set up (" + control + ")",
                       "programs that use it share their faults; end it (echo quit | nvidia-cuda-mps-control) to avoid that"});
}

// As cuda.h numbers them.
constexpr int kDefault = 0, kProhibited = 2;

void add_devices(const NvmlView& nvml, Checks* checks) {
  // One that is closed to sharing is a fault only where there is no other.
  bool any = std::any_of(nvml.devices.begin(), nvml.devices.end(), [](const auto& d) { return d.compute_mode == kDefault; });
  Health closed = any ? Health::warning : Health::failed;
  for (const NvmlView::Device& device : nvml.devices) {
    std::string name = "device " + std::to_string(device.index), index = std::to_string(device.index);
    std::string found = device.name + ", " + format_size(device.total_bytes) + ", " + device.uuid;
    if (device.compute_mode == kProhibited)
      checks->push_back({name, closed, found + ", compute mode prohibited: no job is admitted there",
                         "nvidia-smi -i " + index + " -c DEFAULT (as root)"});
    else if (device.compute_mode != kDefault)
      checks->push_back({name, closed, found + ", compute mode exclusive: one job and one process at a time",
                         "nvidia-smi -i " + index + " -c DEFAULT (as root)"});
    else if (device.mig)
      checks->push_back({name, Health::warning, found + ", MIG is on", "berth shares whole devices; it doesn't know MIG instances"});
    else
      checks->push_back({name, Health::ok, found, ""});
  }
}

}  // namespace

Checks check_driver() {
  Checks checks;
  client::DriverFiles files = client::find_driver_files();
  NvmlView nvml = read_nvml();
  if (files.cuda.empty()) {
    const char* chosen = std::getenv("BERTH_DRIVER");
    if (chosen && *chosen)
      return {{"driver", Health::failed, std::string("BERTH_DRIVER=") + chosen + " names no library for this machine",
               "unset it, or set it to sim or to the path of a libcuda.so.1"}};
    return {{"driver", Health::failed, "there is no libcuda.so.1", kNoDevice}};
  }
  const std::string& library = files.cuda.front();
  std::string version = nvml.driver_version.empty() ? version_in(library) : nvml.driver_version;
  checks.push_back({"driver", Health::ok, library + (version.empty() ? "" : ", version " + version), ""});
  checks.push_back(check_names(library));
  if (!nvml.fault.empty())
    checks.push_back({"NVML", Health::failed, nvml.fault, kNoDevice});
  else if (nvml.devices.empty())
    checks.push_back({"NVML", Health::failed, nvml.library + " lists no device", kNoDevice});
  else
    checks.push_back({"NVML", Health::ok, nvml.library, ""});
  add_devices(nvml, &checks);
  add_mps(&checks);
  add_rivals(&checks);
  return checks;
}

}  // namespace berth::cli
