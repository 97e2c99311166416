// The parts that other processes play in the tests, and the test program's main().
#include <sys/prctl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

using Clock = std::chrono::steady_clock;

std::string hex(const void* data, size_t bytes) {
  std::string text;
  char digits[3];
  for (size_t i = 0; i < bytes; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += digits;
  }
  return text;
}

void await_line() {
  std::string line;
  std::getline(std::cin, line);
}

int hold(uint64_t bytes) {
  CUcontext context;
  CU(cuInit)(0);
  if (CUresult bad = CU(cuDevicePrimaryCtxRetain)(&context, 0)) return std::printf("context %d\n", bad), 1;
  CU(cuCtxSetCurrent)(context);
  CUdeviceptr p;
  std::printf("%d\n", CU(cuMemAlloc_v2)(&p, bytes));
  await_line();
  return 0;
}

[[noreturn]] void be_busy(unsigned seed) {
  use_card();
  CUstream stream;
  CU(cuStreamCreate)(&stream, 1);
  std::mt19937 random(seed);
  for (;;) {
    CUdeviceptr a = 0, b = 0;
    CU(cuMemAlloc_v2)(&a, (random() % 16 + 1) * kMiB);
    CU(cuMemAllocAsync)(&b, kMiB, stream);
    if (a) fill(a, 1000, seed, stream);
    CUipcMemHandle handle;
    if (a && random() % 4 == 0) CU(cuIpcGetMemHandle)(&handle, a);
    spin(100000, stream);
    if (b) CU(cuMemFreeAsync)(b, stream);
    CU(cuStreamSynchronize)(stream);
    if (a) CU(cuMemFree_v2)(a);
  }
}

int check_patterns(uint32_t seed) {
  use_card();
  constexpr uint64_t kWords = kMiB;
  bool good = true;
  for (uint32_t round = 0; round < 10; ++round) {
    CUdeviceptr p[4];
    for (auto& each : p) good &= CU(cuMemAlloc_v2)(&each, kWords * 4) == CUDA_SUCCESS;
    for (uint32_t i = 0; i < 4; ++i) fill(p[i], kWords, seed * 100 + round * 4 + i, nullptr);
    for (uint32_t i = 0; i < 4; ++i) good &= errors_in(p[i], kWords, seed * 100 + round * 4 + i, nullptr) == 0;
    for (auto each : p) CU(cuMemFree_v2)(each);
  }
  std::printf("%s\n", good ? "good" : "damaged");
  await_line();
  return 0;
}

int fork_child() {
  use_card();
  CUdeviceptr p;
  if (fork() == 0) {
    size_t free;
    std::printf("%d %d %d\n", CU(cuInit)(0), CU(cuMemGetInfo_v2)(&free, nullptr), CU(cuMemAlloc_v2)(&p, 64));
    std::fflush(stdout);
    _exit(0);
  }
  wait(nullptr);
  std::printf("%d\n", CU(cuMemAlloc_v2)(&p, 64));
  return 0;
}

int show_faults() {
  use_card();
  CUdeviceptr p;
  CUdevice device;
  for (int i = 0; i < 4; ++i) std::printf("%d ", CU(cuMemAlloc_v2)(&p, 64));
  std::printf("|");
  for (int i = 0; i < 3; ++i) std::printf(" %d", CU(cuCtxGetDevice)(&device));
  void* found;
  CUdriverProcAddressQueryResult status = 0, other = 0;
  CU(cuGetProcAddress_v2)("cuMemCreate", &found, 13000, 0, &status);
  CU(cuGetProcAddress_v2)("cuMemAlloc", &found, 13000, 0, &other);
  std::printf(" | %d %d\n", status, other);
  return 0;
}

int show_devices() {
  if (CUresult bad = CU(cuInit)(0)) return std::printf("cuInit %d\n", bad), 0;
  int count = 0;
  CU(cuDeviceGetCount)(&count);
  std::printf("%d", count);
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    CU(cuDeviceGetUuid_v2)(&uuid, i);
    std::printf(" %s", hex(uuid.bytes, 16).c_str());
  }
  std::printf("\n");
  return 0;
}

// What driver and management library say of each card; a line a card, and it must be the same.
int show_cards() {
  CU(cuInit)(0), ML(nvmlInit_v2)();
  unsigned cards = 0;
  ML(nvmlDeviceGetCount_v2)(&cards);
  for (unsigned i = 0; i < cards; ++i) {
    nvmlDevice_t device;
    nvmlPciInfo_t pci;
    nvmlMemory_v2_t memory{};
    memory.version = sizeof memory | 2u << 24;
    char name[96], same_name[96] = "", bus[32] = "";
    int mode = -1, same_mode = -2;
    size_t total = 0;
    ML(nvmlDeviceGetHandleByIndex_v2)(i, &device);
    ML(nvmlDeviceGetName)(device, name, sizeof name), ML(nvmlDeviceGetPciInfo_v3)(device, &pci);
    ML(nvmlDeviceGetMemoryInfo_v2)(device, &memory), ML(nvmlDeviceGetComputeMode)(device, &mode);
    int ordinal = static_cast<int>(i);
    CU(cuDeviceGetName)(same_name, sizeof same_name, ordinal), CU(cuDeviceGetPCIBusId)(bus, sizeof bus, ordinal);
    CU(cuDeviceTotalMem_v2)(&total, ordinal), CU(cuDeviceGetAttribute)(&same_mode, 20, ordinal);
    bool same = !std::strcmp(name, same_name) && !std::strcmp(pci.busIdLegacy, bus) && mode == same_mode &&
                total == memory.total - memory.reserved;
    std::printf("%s, %zu MiB, %s, mode %d%s\n", name, total >> 20, bus, mode, same ? "" : ", and the driver differs");
  }
  return 0;
}

// Makes contexts on a card, as each line says: "primary", "release", "create", "destroy"; tells each result.
int make_contexts(int device) {
  CU(cuInit)(0);
  CUcontext context = nullptr, own = nullptr;
  for (std::string line; std::getline(std::cin, line);) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (line == "primary") result = CU(cuDevicePrimaryCtxRetain)(&context, device);
    if (line == "release") result = CU(cuDevicePrimaryCtxRelease_v2)(device);
    if (line == "create") result = CU(cuCtxCreate_v2)(&own, 0, device);
    if (line == "destroy") result = CU(cuCtxDestroy_v2)(own);
    std::printf("%d\n", result);
  }
  return 0;
}

int do_spins() {
  use_card();
  spin(1000, nullptr), CU(cuCtxSynchronize)();
  std::printf("ready\n"), std::fflush(stdout);
  await_line();
  auto end = Clock::now() + std::chrono::milliseconds(400);
  int done = 0;
  while (Clock::now() < end) {
    for (int i = 0; i < 4; ++i) spin(500000, nullptr);
    CU(cuCtxSynchronize)();
    done += 4;
  }
  std::printf("%d\n", done);
  return 0;
}

int own_shared() {
  use_card();
  CUdeviceptr p;
  CUipcMemHandle handle;
  CU(cuMemAlloc_v2)(&p, 8 * kMiB);
  fill(p, 2 * kMiB, 21, nullptr), CU(cuCtxSynchronize)();
  CU(cuIpcGetMemHandle)(&handle, p);
  std::printf("%s\n", hex(&handle, sizeof handle).c_str()), std::fflush(stdout);
  await_line();
  return 0;
}

template <class T>
T from_hex(const std::string& text) {
  T value;
  for (size_t i = 0; i < sizeof value; ++i)
    reinterpret_cast<unsigned char*>(&value)[i] =
        static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return value;
}

int use_shared(const std::string& text) {
  use_card();
  auto handle = from_hex<CUipcMemHandle>(text);
  CUdeviceptr p = 0;
  CU(cuIpcOpenMemHandle_v2)(&p, handle, 1);
  for (int i = 0; i < 2; ++i) {
    std::printf("%u errors\n", errors_in(p, 2 * kMiB, 21, nullptr)), std::fflush(stdout);
    await_line();
  }
  return 0;
}

bool send_one(int socket, int fd) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec io{&byte, 1};
  msghdr message{};
  message.msg_iov = &io, message.msg_iovlen = 1, message.msg_control = control, message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, 0) == 1;
}

int send_descriptor(int socket) {
  use_card();
  CUmemAllocationProp properties{1, 1, {1, 0}, nullptr, {}};
  CUmemAccessDesc access{{1, 0}, 3};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr range;
  CU(cuMemCreate)(&handle, 8 * kMiB, &properties, 0);
  CU(cuMemAddressReserve)
  (&range, 8 * kMiB, 0, 0, 0), CU(cuMemMap)(range, 8 * kMiB, 0, handle, 0),
      CU(cuMemSetAccess)(range, 8 * kMiB, &access, 1);
  fill(range, 2 * kMiB, 22, nullptr), CU(cuCtxSynchronize)();
  int fd = -1;
  CU(cuMemExportToShareableHandle)(&fd, handle, 1, 0);
  std::printf("%s\n", send_one(socket, fd) ? "sent" : "not sent"), std::fflush(stdout);
  await_line();
  return 0;
}

int use_descriptor(int fd) {
  use_card();
  CUmemGenericAllocationHandle handle;
  CUmemAccessDesc access{{1, 0}, 3};
  CUdeviceptr range;
  CU(cuMemImportFromShareableHandle)(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), 1);
  CU(cuMemAddressReserve)
  (&range, 8 * kMiB, 0, 0, 0), CU(cuMemMap)(range, 8 * kMiB, 0, handle, 0),
      CU(cuMemSetAccess)(range, 8 * kMiB, &access, 1);
  std::printf("%u errors\n", errors_in(range, 2 * kMiB, 22, nullptr));
  return 0;
}

int own_pool(int socket) {
  use_card();
  CUmemPoolProps properties{};
  properties.allocType = 1, properties.handleTypes = 1, properties.location = {1, 0};
  CUmemoryPool pool;
  CUstream stream;
  CUdeviceptr first, second;
  int fd = -1;
  CU(cuMemPoolCreate)(&pool, &properties), CU(cuStreamCreate)(&stream, 1);
  CU(cuMemAllocFromPoolAsync)
  (&first, 30 * kMiB, pool, stream), CU(cuMemAllocFromPoolAsync)(&second, 8 * kMiB, pool, stream);
  CU(cuMemPoolExportToShareableHandle)(&fd, pool, 1, 0);
  CUmemPoolPtrExportData pointer;
  CU(cuMemPoolExportPointer)(&pointer, second);
  CUevent event;
  CUipcEventHandle event_handle;
  CU(cuEventCreate)(&event, 6), CU(cuIpcGetEventHandle)(&event_handle, event);
  CUdeviceptr flag;
  CU(cuMemAlloc_v2)(&flag, 4), CU(cuMemsetD32_v2)(flag, 0, 1), CU(cuCtxSynchronize)();
  wait_word(flag, 1, stream);
  fill(second, 2 * kMiB, 31, stream);
  CU(cuEventRecord)(event, stream);
  CUmemAllocationProp plain{1, 1, {1, 0}, nullptr, {}};
  CUmemGenericAllocationHandle handle;
  int external = -1;
  CU(cuMemCreate)(&handle, 2 * kMiB, &plain, 0), CU(cuMemExportToShareableHandle)(&external, handle, 1, 0);
  send_one(socket, fd), send_one(socket, external);
  std::printf("%s\n%s\n", hex(&pointer, sizeof pointer).c_str(), hex(&event_handle, sizeof event_handle).c_str());
  await_line();
  *reinterpret_cast<volatile uint32_t*>(flag) = 1;
  CU(cuStreamSynchronize)(stream);
  await_line();
  return 0;
}

int use_pool(const std::vector<std::string>& arguments) {
  use_card();
  CUmemoryPool pool;
  CUmemPoolPtrExportData data = from_hex<CUmemPoolPtrExportData>(arguments[1]);
  CUdeviceptr p = 0, mapped = 0;
  CUevent event;
  CU(cuMemPoolImportFromShareableHandle)
  (&pool, reinterpret_cast<void*>(static_cast<intptr_t>(std::stoi(arguments[0]))), 1, 0);
  CU(cuMemPoolImportPointer)(&p, pool, &data);
  CU(cuIpcOpenEventHandle)(&event, from_hex<CUipcEventHandle>(arguments[2]));
  std::printf("event %d\n", CU(cuEventQuery)(event));
  CUstream stream;
  CU(cuStreamCreate)(&stream, 1), CU(cuStreamWaitEvent)(stream, event, 0);
  uint32_t errors = errors_in(p, 2 * kMiB, 31, stream);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
  description.type = 1, description.handle.fd = std::stoi(arguments[3]), description.size = 2 * kMiB;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  buffer.size = 2 * kMiB;
  CUexternalMemory external;
  CU(cuImportExternalMemory)(&external, &description), CU(cuExternalMemoryGetMappedBuffer)(&mapped, external, &buffer);
  fill(mapped, 1000, 4, stream);
  uint32_t external_errors = errors_in(mapped, 1000, 4, stream);
  external_errors += static_cast<uint32_t>(CU(cuMemFree_v2)(mapped) + CU(cuDestroyExternalMemory)(external));
  std::printf("event %d, %u errors, external %u errors\n", CU(cuEventSynchronize)(event), errors, external_errors);
  return 0;
}

int close_all() {
  use_card();
  for (int fd = 3; fd < 100; ++fd) close(fd);
  for (int i = 0; i < 20; ++i) (void)!dup(0);
  CUdeviceptr p;
  CU(cuMemAlloc_v2)(&p, 8 * kMiB);
  fill(p, 2 * kMiB, 9, nullptr);
  std::printf("%u errors\n", errors_in(p, 2 * kMiB, 9, nullptr));
  return CU(cuMemFree_v2)(p);
}

}  // namespace

int play(const std::string& part, const std::vector<std::string>& arguments) {
  auto number = [&] { return arguments.empty() ? 0 : std::stoull(arguments[0]); };
  if (part == "hold") return hold(number());
  if (part == "busy") be_busy(static_cast<unsigned>(number()));
  if (part == "patterns") return check_patterns(static_cast<uint32_t>(number()));
  if (part == "fork") return fork_child();
  if (part == "faults") return show_faults();
  if (part == "devices") return show_devices(), arguments.empty() ? void() : await_line(), 0;
  if (part == "spins") return do_spins();
  if (part == "ipc_owner") return own_shared();
  if (part == "ipc_user") return use_shared(arguments.at(0));
  if (part == "fd_owner") return send_descriptor(static_cast<int>(number()));
  if (part == "cards") return show_cards();
  if (part == "contexts") return make_contexts(static_cast<int>(number()));
  if (part == "fd_user") return use_descriptor(static_cast<int>(number()));
  if (part == "pool_owner") return own_pool(static_cast<int>(number()));
  if (part == "pool_user") return use_pool(arguments);
  if (part == "close_all") return close_all();
  return 2;
}

}  // namespace berth::sim

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 2 && std::string(argv[1]) == "--part") {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return berth::sim::play(argv[2], std::vector<std::string>(argv + 3, argv + argc));
  }
  char folder[] = "/tmp/berth-sim-test-XXXXXX";
  if (!mkdtemp(folder)) return 2;
  setenv("BERTH_SIM_DIR", folder, 1), setenv("BERTH_SIM_MEMORY", "4G", 1), setenv("BERTH_SIM_GPUS", "2", 1);
  unsetenv("BERTH_SIM_FAULTS"), unsetenv("CUDA_VISIBLE_DEVICES");
  testing::InitGoogleTest(&argc, argv);
  int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
