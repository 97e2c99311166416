// Where the real driver's libraries are on this machine: for --isolate, which covers them all, and for doctor.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace berth::client {

struct DriverFiles {
  std::vector<std::string> cuda;  // real paths of all libcuda.so.1, in the order in which a program would find them
  std::vector<std::string> nvml;  // the same of libnvidia-ml.so.1
};

// Searched: BERTH_DRIVER, LD_LIBRARY_PATH, the loader's cache, the usual folders. Without our own files (by device and
// inode), without duplicates, only libraries for this processor.
DriverFiles find_driver_files();

// The value of BERTH_DRIVER, "" if it is not set.
std::string driver_choice();

// Error if BERTH_DRIVER is neither "sim" nor the path of a file, or that of our own: then a program would find no driver.
// Also if it is the simulated GPU and a number or a size that describes it makes no sense.
Status check_driver_choice();

// The paths that the text of an ld.so.cache names for `library`. Never reads outside `cache`.
std::vector<std::string> paths_in_loader_cache(const std::string& cache, const std::string& library);

}  // namespace berth::client
