#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/paths.h"
#include "base/size.h"
#include "cli/doctor.h"
#include "cli/probe.h"
#include "client/daemon.h"

namespace berth::cli {
namespace {

constexpr std::chrono::seconds kPatience{120};
constexpr uint64_t kUsualQuota = 2ull << 30, kSmallest = 64ull << 20;

using Arguments = std::vector<std::string>;

// What went wrong, or the result line of berth-load --json. Lines of `berth run` itself may be among its lines.
Json read_result(const Result<std::string>& text, int status, const Arguments& arguments) {
  if (!text) return {{"fault", text.error().message}};
  Json result;
  std::string said;  // the last thing
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (Json object = Json::parse(line, nullptr, false); object.is_object()) result = std::move(object);
    if (line.starts_with("berth: ")) said = line.substr(line.find(' ') + 1);
  }
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (!result.is_object())
    return {{"fault", "berth run ... berth-load " + arguments[0] + " ended with exit code " + std::to_string(code) +
                          (said.empty() ? "" : ": " + said)}};
  if (auto error = result.find("error"); error != result.end()) return {{"fault", error->value("message", "unknown")}};
  return result;
}

// A device that lets two programs in: with several, jobs would go to one each.
std::optional<unsigned> shared_device(const NvmlView& nvml) {
  Json closed = Json::array();  // by the daemon's configuration
  if (auto connection = client::connect_daemon())
    if (auto status = connection->request({{"op", "status"}}))
      for (const Json& device : status->value("devices", Json::array()))
        if (device.value("compute_mode", "default") != "default") closed.push_back(device.value("uuid", ""));
  for (const NvmlView::Device& device : nvml.devices)
    if (device.compute_mode == 0 && std::find(closed.begin(), closed.end(), Json(device.uuid)) == closed.end())
      return device.index;
  return std::nullopt;
}

// How the two are run.
struct Place {
  unsigned device;
  uint64_t quota;
};

Result<Child> start_load(char which, const Place& place, const Arguments& arguments) {
  std::string bin = executable_folder(), name = "doctor-" + std::to_string(::getpid()) + "-" + which;
  Arguments argv{bin + "/berth", "run", "-n", name, "-m", std::to_string(place.quota), "--device", std::to_string(place.device),
                 "--", bin + "/berth-load"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.push_back("--json");
  return Child::execute(argv, {}, true);
}

// Two jobs that run the same at the same time.
std::vector<Json> run_two(const Place& place, const Arguments& arguments) {
  auto one = start_load('a', place, arguments), two = start_load('b', place, arguments);
  std::vector<Json> results;
  for (Result<Child>* child : {&one, &two}) {
    int status = 0;
    auto text = *child ? (*child)->output(kPatience, &status) : Result<std::string>(child->error());
    results.push_back(read_result(text, status, arguments));
  }
  return results;
}

std::string fault_of(const std::vector<Json>& results) {
  for (const Json& result : results)
    if (std::string fault = result.value("fault", ""); !fault.empty()) return fault;
  return "";
}

uint64_t sum_of(const std::vector<Json>& results, const char* key) {
  uint64_t sum = 0;
  for (const Json& result : results) sum += result.value(key, uint64_t{0});
  return sum;
}

// Both allocate until they are refused: neither may get more than its quota, and what it has must stay its own.
Check check_quotas(const Place& place) {
  const uint64_t quota = place.quota;
  auto results = run_two(place, {"alloc", "--grow", "--step", "32M", "--seconds", "1"});
  if (auto fault = fault_of(results); !fault.empty()) return {"quotas", Health::failed, fault, "run it by hand to see more"};
  uint64_t least = ~0ull, most = 0;
  for (const Json& result : results) {
    uint64_t bytes = result.value("bytes", uint64_t{0});
    least = std::min(least, bytes), most = std::max(most, bytes);
    if (result.value("total_bytes", uint64_t{0}) != quota)
      return {"quotas", Health::failed, "a program with a quota of " + format_size(quota) + " sees a device of " +
              format_size(result.value("total_bytes", uint64_t{0})), "berth's library isn't loaded, see 'reach'"};
  }
  std::string found = "two programs with " + format_size(quota) + " each got " + format_size(least) + " and " + format_size(most);
  bool refused = std::all_of(results.begin(), results.end(), [](const Json& r) { return r.value("refusal", Json()).is_object(); });
  if (most > quota || least < kSmallest || !refused || sum_of(results, "wrong") > 0)
    return {"quotas", Health::failed, found, sum_of(results, "wrong") ? "patterns in memory were wrong" : "quotas don't hold here"};
  return {"quotas", Health::ok, found + " and were then refused", ""};
}

// Both write and verify for some seconds.
Check check_progress(const Place& place) {
  auto results = run_two(place, {"check", "--bytes", "64M", "--seconds", "2"});
  if (auto fault = fault_of(results); !fault.empty()) return {"progress", Health::failed, fault, "run it by hand to see more"};
  std::string found = "two programs side by side verified their memory " + std::to_string(results[0].value("rounds", 0)) +
                      " and " + std::to_string(results[1].value("rounds", 0)) + " times";
  if (sum_of(results, "wrong") > 0) return {"progress", Health::failed, found + ", and it was wrong", "the device or its memory is faulty"};
  if (results[0].value("rounds", 0) == 0 || results[1].value("rounds", 0) == 0)
    return {"progress", Health::failed, found, "one of them doesn't get the device"};
  return {"progress", Health::ok, found, ""};
}

}  // namespace

Checks check_by_running() {
  NvmlView nvml = read_nvml();
  if (nvml.devices.empty())
    return {{"test", Health::failed, "no device to test on", "set BERTH_DRIVER=sim to test on a simulated one"}};
  auto device = shared_device(nvml);
  if (!device)
    return {{"test", Health::warning, "not run: the compute modes let no two programs share a device", "see the devices above"}};
  Place place{*device, kUsualQuota};
  for (const NvmlView::Device& each : nvml.devices)
    if (each.index == *device) place.quota = std::min(place.quota, each.total_bytes / 4);
  Check quotas = check_quotas(place);
  if (quotas.health == Health::failed) return {quotas};
  return {quotas, check_progress(place)};
}

}  // namespace berth::cli
