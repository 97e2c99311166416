#include "client/driver_files.h"

#include <elf.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/paths.h"
#include "base/size.h"

namespace berth::client {
namespace {

constexpr const char* kFolders[] = {
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64",
    "/usr/local/cuda/compat", "/run/opengl-driver/lib",
};

using FileId = std::pair<dev_t, ino_t>;

bool is_library_for_us(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Elf64_Ehdr header{}, own{};
  std::ifstream("/proc/self/exe", std::ios::binary).read(reinterpret_cast<char*>(&own), sizeof own);
  return in.read(reinterpret_cast<char*>(&header), sizeof header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == own.e_machine;
}

void add(const std::string& path, std::set<FileId>* seen, std::vector<std::string>* files) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (!is_library_for_us(path) || !seen->insert({info.st_dev, info.st_ino}).second) return;
  std::error_code error;
  auto real = std::filesystem::canonical(path, error);
  files->push_back(error ? path : real.string());
}

std::vector<std::string> search(const std::string& library, const std::string& chosen, const std::string& cache) {
  std::set<FileId> seen;
  struct stat own;
  if (::stat((library_folder() + "/shim/" + library).c_str(), &own) == 0) seen.insert({own.st_dev, own.st_ino});
  std::vector<std::string> files;
  if (!chosen.empty()) add(chosen.substr(0, chosen.rfind('/') + 1) + library, &seen, &files);
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (!folder.empty()) add(folder + "/" + library, &seen, &files);
  }
  for (const std::string& path : paths_in_loader_cache(cache, library)) add(path, &seen, &files);
  for (const char* folder : kFolders) add(std::string(folder) + "/" + library, &seen, &files);
  return files;
}

}  // namespace

std::vector<std::string> paths_in_loader_cache(const std::string& cache, const std::string& library) {
  // The layout of glibc's "glibc-ld.so.cache1.1", which may follow one of the old format; offsets count from its start.
  static constexpr char kMagic[] = "glibc-ld.so.cache1.1";
  struct Entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hardware;
  };
  constexpr size_t kHeader = 48, kCountAt = 20;
  std::vector<std::string> result;
  size_t start = cache.find(kMagic);
  if (start == std::string::npos || cache.size() - start < kHeader) return result;
  std::string_view body = std::string_view(cache).substr(start);
  auto text_at = [&](uint32_t offset) {
    if (offset >= body.size()) return std::string_view();
    size_t end = body.find('\0', offset);
    return end == std::string_view::npos ? std::string_view() : body.substr(offset, end - offset);
  };
  uint32_t count;
  std::memcpy(&count, body.data() + kCountAt, sizeof count);
  for (uint32_t i = 0; i < count && kHeader + (i + 1ull) * sizeof(Entry) <= body.size(); ++i) {
    Entry entry;
    std::memcpy(&entry, body.data() + kHeader + i * sizeof(Entry), sizeof entry);
    if (text_at(entry.key) == library) result.emplace_back(text_at(entry.value));
  }
  return result;
}

std::string driver_choice() {
  const char* variable = std::getenv("BERTH_DRIVER");
  return variable ? variable : "";
}

namespace {

bool is_ours(const std::string& path, const char* folder) {
  std::error_code error;
  return std::filesystem::equivalent(path, library_folder() + "/" + folder + "/libcuda.so.1", error);
}

// By the rules of src/sim/settings.cpp, which takes its defaults where a value makes no sense.
Status check_simulated_gpu() {
  auto wrong = [](const std::string& name, const std::string& value, const std::string& advice) {
    return Error{"no_device", name + " of the simulated GPU is '" + value + "': " + advice + ", or unset it"};
  };
  auto parts = [](const char* name) {
    std::vector<std::string> result;
    std::string text = std::getenv(name) ? std::getenv(name) : "";
    for (size_t at = 0; !text.empty() && at <= text.size(); at += result.back().size() + 1)
      result.push_back(text.substr(at, text.find(',', at) - at));
    return result;
  };
  for (const std::string& part : parts("BERTH_SIM_MEMORY"))
    if (auto size = parse_size(part); !size || *size == 0)
      return wrong("BERTH_SIM_MEMORY", part,
                   "give bytes, or a number with K, M, G or T such as 16G, or one for each GPU such as 16G,8G");
  for (const std::string& part : parts("BERTH_SIM_COMPUTE_MODE"))
    if (part != "default" && part != "exclusive" && part != "exclusive_process" && part != "exclusive_thread" && part != "prohibited")
      return wrong("BERTH_SIM_COMPUTE_MODE", part, "give default, exclusive or prohibited, or one for each GPU");
  if (const char* text = std::getenv("BERTH_SIM_CONTEXT"); text && *text && !parse_size(text))
    return wrong("BERTH_SIM_CONTEXT", text, "give bytes, or a number with K, M, G or T such as 518M");
  for (const char* name : {"BERTH_SIM_GPUS", "BERTH_SIM_EXIT_MS", "BERTH_SIM_SPEED"}) {
    const char* text = std::getenv(name);
    if (!text || !*text) continue;
    char* end = nullptr;
    double value = std::strtod(text, &end);
    if (*end != '\0' || !(value >= 0 && value < 1e15)) return wrong(name, text, "give a number from 0 up");
  }
  return Ok{};
}

}  // namespace

Status check_driver_choice() {
  std::string chosen = driver_choice(), why;
  if (chosen == "sim" || is_ours(chosen, "sim")) return check_simulated_gpu();
  if (chosen.empty()) return Ok{};
  if (is_ours(chosen, "shim"))
    return Error{"no_device", "BERTH_DRIVER=" + chosen + " is berth's own library, which comes before a driver and is none; "
                                  "set it to sim or to the path of the driver's libcuda.so.1, or unset it"};
  struct stat info;
  if (chosen.find('/') == std::string::npos)
    why = "neither 'sim' nor a path";
  else if (::stat(chosen.c_str(), &info) != 0)
    why = std::strerror(errno);
  else if (!S_ISREG(info.st_mode))
    why = "that is no file";
  else
    return Ok{};
  return Error{"no_device", "BERTH_DRIVER=" + chosen + " names no driver (" + why +
                                "); set it to sim or to the path of a libcuda.so.1, or unset it"};
}

DriverFiles find_driver_files() {
  std::string chosen = driver_choice();
  if (chosen == "sim") chosen = library_folder() + "/sim/libcuda.so.1";
  std::ifstream in("/etc/ld.so.cache", std::ios::binary);
  std::string cache((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return {search("libcuda.so.1", chosen, cache), search("libnvidia-ml.so.1", chosen, cache)};
}

}  // namespace berth::client
