// Several processes on the same simulated cards; killed, stopped and forked ones among them.
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kContext = 518 * kMiB;

nvmlDevice_t management() {
  static nvmlDevice_t device = [] {
    nvmlDevice_t found = nullptr;
    ML(nvmlInit_v2)();
    ML(nvmlDeviceGetHandleByIndex_v2)(0, &found);
    return found;
  }();
  return device;
}

// Bytes that NVML lists for the process; 0: not listed.
uint64_t listed(pid_t pid) {
  nvmlProcessInfo_t infos[64];
  unsigned count = 64;
  EXPECT_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(management(), &count, infos), NVML_SUCCESS);
  for (unsigned i = 0; i < count; ++i)
    if (infos[i].pid == static_cast<unsigned>(pid)) return infos[i].usedGpuMemory;
  return 0;
}

uint64_t free_by_management() {
  nvmlMemory_t memory{};
  ML(nvmlDeviceGetMemoryInfo)(management(), &memory);
  return memory.free;
}

// True as soon as it holds; waits ten times as long as it may take.
template <class Condition>
bool soon(Condition condition) {
  auto end = Clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

int receive_descriptor(int socket) {
  char byte, control[CMSG_SPACE(sizeof(int))] = {};
  iovec io{&byte, 1};
  msghdr message{};
  message.msg_iov = &io, message.msg_iovlen = 1, message.msg_control = control, message.msg_controllen = sizeof control;
  int fd = -1;
  EXPECT_EQ(recvmsg(socket, &message, 0), 1);
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

// Each test begins when those that took part in the last one have left the card.
class SimProcesses : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(management());
    ASSERT_NE(use_card(), nullptr);
    uint64_t own = listed(getpid());
    ASSERT_TRUE(soon([&] { return listed(getpid()) == own && free_by_management() == 4096 * kMiB - own; }));
    before = free_by_management();
  }
  uint64_t before = 0;
};

TEST_F(SimProcesses, OneTruthForAll) {
  Part part({"hold", std::to_string(100 * kMiB)});
  ASSERT_EQ(part.line(), "0");
  EXPECT_EQ(listed(part.pid), kContext + 100 * kMiB);
  EXPECT_EQ(before - free_by_management(), kContext + 100 * kMiB);
  nvmlMemory_v2_t memory{};
  memory.version = sizeof memory | 2u << 24;
  ASSERT_EQ(ML(nvmlDeviceGetMemoryInfo_v2)(management(), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, memory.free + memory.used + memory.reserved);
  part.say("end");
  EXPECT_EQ(part.wait(), 0);
  EXPECT_TRUE(soon([&] { return free_by_management() == before; }));
}

TEST_F(SimProcesses, TheCardRunsOut) {
  Part large({"hold", std::to_string(before - 2 * kContext)});
  ASSERT_EQ(large.line(), "0");
  Part second({"hold", std::to_string(600 * kMiB)});
  EXPECT_EQ(second.line(), "2") << "its context fits, its memory does not";
  Part third({"hold", "1000"});
  EXPECT_EQ(third.line(), "context 2");
  second.kill();
  EXPECT_TRUE(soon([&] { return listed(large.pid) && free_by_management() == before - listed(large.pid); }));
}

TEST_F(SimProcesses, TheDeadKeepTheirMemoryForAMoment) {
  Part part({"hold", std::to_string(64 * kMiB)}, {"BERTH_SIM_EXIT_MS=200"});
  ASSERT_EQ(part.line(), "0");
  pid_t pid = part.pid;
  part.kill();
  EXPECT_EQ(listed(pid), kContext + 64 * kMiB) << "still leaving";
  EXPECT_TRUE(soon([&] { return listed(pid) == 0 && free_by_management() == before; }));
  Part reset({"hold", "1"}, {"BERTH_SIM_EXIT_MS=20"});
  reset.line();
}

// kill -9 at any moment of anything: nobody waits, and nothing is lost.
TEST_F(SimProcesses, KillsInTheMiddleOfAnything) {
  std::mt19937 random(7);
  std::vector<Part> parts;
  for (int i = 0; i < 4; ++i) parts.emplace_back(Part({"busy", std::to_string(i)}));
  for (int round = 0; round < 60; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    size_t which = random() % parts.size();
    parts[which].kill();
    auto asked = Clock::now();
    free_by_management();
    EXPECT_LT(Clock::now() - asked, std::chrono::seconds(5));
    parts[which] = Part({"busy", std::to_string(round)});
  }
  for (auto& part : parts) part.kill();
  EXPECT_TRUE(soon([&] { return free_by_management() == before; }));
}

// Patterns of one process are never seen damaged by the others.
TEST_F(SimProcesses, MemoryIsPrivate) {
  std::vector<Part> parts;
  for (int i = 0; i < 3; ++i) parts.emplace_back(Part({"patterns", std::to_string(i)}));
  for (auto& part : parts) EXPECT_EQ(part.line(), "good");
}

TEST_F(SimProcesses, AForkedChildHasNoDriver) {
  Part part({"fork"});
  EXPECT_EQ(part.line(), "3 3 3");
  EXPECT_EQ(part.line(), "0");
}

TEST_F(SimProcesses, FaultsAreInjected) {
  Part part({"faults"},
            {"BERTH_SIM_FAULTS=cuMemAlloc_v2:2@3,cuCtxGetDevice:999@2+,symbols=missing:cuMemCreate;cuMemMap"});
  EXPECT_EQ(part.line(), "0 0 2 0 | 0 999 999 | 1 0");
}

TEST_F(SimProcesses, CudaVisibleDevicesChooses) {
  Part both({"devices"}), second({"devices"}, {"CUDA_VISIBLE_DEVICES=1"}), none({"devices"}, {"CUDA_VISIBLE_DEVICES="});
  std::string all = both.line(), one = second.line();
  EXPECT_EQ(all.substr(0, 2), "2 ");
  EXPECT_EQ(one, "1 " + all.substr(all.rfind(' ') + 1));
  EXPECT_EQ(none.line(), "cuInit 100");
}

// Two that keep the card busy get half of its time each.
TEST_F(SimProcesses, TurnsAreFair) {
  Part a({"spins"}), b({"spins"});
  ASSERT_EQ(a.line(), "ready");
  ASSERT_EQ(b.line(), "ready");
  a.say("go"), b.say("go");
  double one = std::stod(a.line()), other = std::stod(b.line());
  EXPECT_GT(one / (one + other), 0.35) << one << " and " << other;
  EXPECT_LT(one / (one + other), 0.65) << one << " and " << other;
}

// A process that is stopped or killed while it has the card holds nobody up.
TEST_F(SimProcesses, AStoppedHolderIsPassed) {
  Part holder({"spins"});
  ASSERT_EQ(holder.line(), "ready");
  holder.say("go");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(holder.pid, SIGSTOP);
  Part other({"patterns", "1"});
  EXPECT_EQ(other.line(), "good");
  kill(holder.pid, SIGCONT);
}

TEST_F(SimProcesses, MemoryIsSharedByHandle) {
  Part owner({"ipc_owner"});
  std::string handle = owner.line();
  ASSERT_EQ(handle.size(), 128u);
  Part user({"ipc_user", handle});
  EXPECT_EQ(user.line(), "0 errors");
  uint64_t alone = listed(user.pid);
  EXPECT_EQ(alone, kContext + 2 * kMiB) << "the exporter is charged";
  owner.kill();
  user.say("again");
  EXPECT_EQ(user.line(), "0 errors") << "the exporter is dead, the memory is not";
  EXPECT_TRUE(soon([&] { return listed(user.pid) == alone + 8 * kMiB; })) << "now the importer is charged";
}

// A descriptor alone keeps memory alive, also when nobody has mapped it.
TEST_F(SimProcesses, MemoryIsSharedByDescriptor) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  Part owner({"fd_owner", std::to_string(pair[1])});
  ASSERT_EQ(owner.line(), "sent");
  owner.kill();
  int fd = receive_descriptor(pair[0]);
  EXPECT_TRUE(soon([&] { return before - free_by_management() == 8 * kMiB; })) << "kept by the descriptor";
  {
    Part user({"fd_user", std::to_string(fd)});
    EXPECT_EQ(user.line(), "0 errors");
  }
  close(fd);
  EXPECT_TRUE(soon([&] { return free_by_management() == before; }));
  close(pair[0]), close(pair[1]);
}

// A pool and a pointer of it; an event that says when the data is there; and memory imported as a vulkan program would.
TEST_F(SimProcesses, PoolsEventsAndExternalMemoryAreShared) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  Part owner({"pool_owner", std::to_string(pair[1])});
  std::string pointer = owner.line(), event = owner.line();
  ASSERT_EQ(pointer.size(), 128u);
  ASSERT_EQ(event.size(), 128u);
  int pool = receive_descriptor(pair[0]), external = receive_descriptor(pair[0]);
  Part user({"pool_user", std::to_string(pool), pointer, event, std::to_string(external)});
  EXPECT_EQ(user.line(), "event 600");
  owner.say("go");
  EXPECT_EQ(user.line(), "event 0, 0 errors, external 0 errors");
  for (int fd : {pool, external, pair[0], pair[1]}) close(fd);
}

// Programs close descriptors that are not theirs and reuse the numbers.
TEST_F(SimProcesses, ClosedDescriptorsDoNoHarm) {
  Part part({"close_all"});
  EXPECT_EQ(part.line(), "0 errors");
}

// The first process decides what cards there are, until nobody uses them.
TEST_F(SimProcesses, TheFolderIsMadeAnewWhenNobodyUsesIt) {
  std::string folder = std::string(getenv("BERTH_SIM_DIR")) + "/other";
  std::vector<std::string> one{"BERTH_SIM_DIR=" + folder, "BERTH_SIM_GPUS=1"},
      three{"BERTH_SIM_DIR=" + folder, "BERTH_SIM_GPUS=3"};
  {
    Part first({"devices", "stay"}, one);
    EXPECT_EQ(first.line().substr(0, 2), "1 ");
    Part other({"devices"}, three);
    EXPECT_EQ(other.line().substr(0, 2), "1 ") << "the first process is still there";
    other.wait();
  }
  Part last({"devices"}, three);
  EXPECT_EQ(last.line().substr(0, 2), "3 ");
}

TEST_F(SimProcesses, ManyStartAtOnce) {
  std::vector<Part> parts;
  for (int i = 0; i < 24; ++i) parts.emplace_back(Part({"devices"}));
  for (auto& part : parts) EXPECT_EQ(part.line().substr(0, 2), "2 ");
}

}  // namespace
}  // namespace berth::sim
