// berth doctor: what would stop sharing here, and how to mend it. Each check is a row; none changes anything.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace berth::cli {

using Json = nlohmann::json;

enum class Health { ok, warning, failed };

struct Check {
  std::string name;
  Health health = Health::ok;
  std::string found;   // what is there
  std::string advice;  // what to do; "" when all is well
};
using Checks = std::vector<Check>;

// doctor_system.cpp: kernel, processes' limits, namespaces, container.
Checks check_system();
// doctor_driver.cpp: the driver's libraries, their names against our list, devices, MPS.
Checks check_driver();
// doctor_berth.cpp: our own files, how programs find them, the daemon.
Checks check_berth();
// doctor_run.cpp, --test: two programs at once under berth run, which really share the GPU for some seconds.
Checks check_by_running();

Health worst(const Checks& checks);
int doctor_exit_code(const Checks& checks);
Json doctor_json(const Checks& checks);
std::string doctor_text(const Checks& checks, bool colour);

// What a device says through NVML, read in a process of its own (a broken driver must not take the doctor with it).
struct NvmlView {
  std::string fault;  // "" if NVML works
  std::string driver_version, library;
  struct Device {
    unsigned index = 0;
    std::string name, uuid;
    uint64_t total_bytes = 0;
    int compute_mode = 0;
    bool mig = false;
  };
  std::vector<Device> devices;
};
NvmlView read_nvml();

}  // namespace berth::cli
