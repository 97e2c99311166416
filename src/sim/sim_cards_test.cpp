// Several simulated cards: their sizes and names, their compute modes, and memory of one used from another.
#include <filesystem>

#include "sim/sim_test_support.h"

namespace berth::sim {
namespace {

// Cards in a folder of their own, as the environment describes them to all parts.
class SimCards : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void describe(const std::string& name, const std::string& value) { environment_.push_back(name + "=" + value); }
  Part part(std::vector<std::string> words) {
    auto environment = environment_;
    environment.push_back("BERTH_SIM_DIR=" + folder_);
    return Part(std::move(words), environment);
  }
  static std::string ask(Part& part, const std::string& what) {
    part.say(what);
    return part.line();
  }

 private:
  std::string folder_ = std::string(getenv("BERTH_SIM_DIR")) + "/cards";
  std::vector<std::string> environment_;
};

TEST_F(SimCards, AListOfSizesIsAListOfCards) {
  describe("BERTH_SIM_MEMORY", "16G,8G,8G");
  describe("BERTH_SIM_GPUS", "");
  Part cards = part({"cards"}), again = part({"cards"});
  for (const char* line : {"berth simulated GPU 16 GiB, 16384 MiB, 0000:10:00.0, mode 0",
                           "berth simulated GPU 8 GiB, 8192 MiB, 0000:11:00.0, mode 0",
                           "berth simulated GPU 8 GiB, 8192 MiB, 0000:12:00.0, mode 0", ""}) {
    EXPECT_EQ(cards.line(), line);
    EXPECT_EQ(again.line(), line);
  }
}

TEST_F(SimCards, TheLastOfAListGoesForTheRest) {
  describe("BERTH_SIM_MEMORY", "2G,1G");
  describe("BERTH_SIM_COMPUTE_MODE", "exclusive,default,prohibited");
  describe("BERTH_SIM_GPUS", "4");
  Part cards = part({"cards"});
  for (const char* line : {"berth simulated GPU 2 GiB, 2048 MiB, 0000:10:00.0, mode 3",
                           "berth simulated GPU 1 GiB, 1024 MiB, 0000:11:00.0, mode 0",
                           "berth simulated GPU 1 GiB, 1024 MiB, 0000:12:00.0, mode 2",
                           "berth simulated GPU 1 GiB, 1024 MiB, 0000:13:00.0, mode 2"})
    EXPECT_EQ(cards.line(), line);
}

TEST_F(SimCards, ManyCardsAreApart) {
  describe("BERTH_SIM_MEMORY", "1G");
  describe("BERTH_SIM_GPUS", "99");
  Part cards = part({"cards"});
  std::string last;
  int count = 0;
  for (std::string line = cards.line(); !line.empty(); line = cards.line()) last = line, ++count;
  EXPECT_EQ(count, 16) << "the most there can be";
  EXPECT_EQ(last, "berth simulated GPU, 1024 MiB, 0000:1F:00.0, mode 0");
}

TEST_F(SimCards, AnExclusiveCardHasOneProcess) {
  describe("BERTH_SIM_COMPUTE_MODE", "exclusive,default");
  Part first = part({"contexts", "0"}), second = part({"contexts", "0"}), beside = part({"contexts", "1"});
  EXPECT_EQ(ask(first, "primary"), "0");
  EXPECT_EQ(ask(first, "create"), "0") << "a second context of the same process";
  EXPECT_EQ(ask(second, "primary"), "46");
  EXPECT_EQ(ask(second, "create"), "46");
  EXPECT_EQ(ask(beside, "primary"), "0");
  EXPECT_EQ(ask(first, "release"), "0");
  EXPECT_EQ(ask(second, "create"), "46") << "one is left";
  EXPECT_EQ(ask(first, "destroy"), "0");
  EXPECT_EQ(ask(second, "create"), "0");
  EXPECT_EQ(ask(first, "primary"), "46");
  second.kill();
  std::string code;
  for (int i = 0; i < 1000 && code != "0"; ++i, usleep(2000)) code = ask(first, "primary");
  EXPECT_EQ(code, "0") << "the dead let go";
}

TEST_F(SimCards, AProhibitedCardHasNone) {
  describe("BERTH_SIM_COMPUTE_MODE", "default,prohibited");
  Part first = part({"contexts", "0"}), second = part({"contexts", "1"});
  EXPECT_EQ(ask(first, "primary"), "0");
  EXPECT_EQ(ask(second, "primary"), "46");
  EXPECT_EQ(ask(second, "create"), "46");
}

// In this process, on the two cards that main() describes.
class SimPeers : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context[i], i), CUDA_SUCCESS);
      ASSERT_EQ(CU(cuCtxSetCurrent)(context[i]), CUDA_SUCCESS);
      ASSERT_EQ(CU(cuMemAlloc_v2)(&memory[i], kWords * 4), CUDA_SUCCESS);
    }
    ASSERT_EQ(CU(cuCtxSetCurrent)(context[0]), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (int i : {1, 0}) {
      CU(cuCtxSetCurrent)(context[i]);
      CU(cuMemFree_v2)(memory[i]);
      CU(cuDevicePrimaryCtxRelease_v2)(i);
    }
  }
  // Into the current context: the one that kernel() keeps is another's.
  static CUfunction load(const char* name) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(CU(cuModuleLoadData)(&module, kPtx), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuModuleGetFunction)(&function, module, name), CUDA_SUCCESS);
    return function;
  }
  static constexpr uint64_t kWords = 1000;
  CUcontext context[2] = {};
  CUdeviceptr memory[2] = {};
};

TEST_F(SimPeers, CopiesGoBetweenCardsWithoutPeerAccess) {
  int can = -1;
  EXPECT_EQ(CU(cuDeviceCanAccessPeer)(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(CU(cuDeviceCanAccessPeer)(&can, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(CU(cuDeviceCanAccessPeer)(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
  std::vector<uint32_t> data(kWords), back(kWords);
  for (uint32_t i = 0; i < kWords; ++i) data[i] = i * 7;
  ASSERT_EQ(CU(cuCtxSetCurrent)(context[1]), CUDA_SUCCESS);
  uint64_t ns = 20'000'000;
  void* arguments[] = {&ns};
  ASSERT_EQ(launch(load("berth_spin"), nullptr, arguments), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD32Async)(memory[1], 9, kWords, nullptr),
            CUDA_SUCCESS);  // comes before the copy, though in another context
  ASSERT_EQ(CU(cuCtxSetCurrent)(context[0]), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyHtoD_v2)(memory[0], data.data(), kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyPeer)(memory[1], context[1], memory[0], context[0], kWords * 4), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCtxSetCurrent)(context[1]), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), memory[1], kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(back, data);
  ASSERT_EQ(CU(cuMemsetD32_v2)(memory[1], 3, kWords), CUDA_SUCCESS);
  CUstream stream;
  ASSERT_EQ(CU(cuStreamCreate)(&stream, 1), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyPeerAsync)(memory[0], context[0], memory[1], context[1], kWords * 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  CU(cuStreamDestroy_v2)(stream);
  ASSERT_EQ(CU(cuMemcpyDtoH_v2)(back.data(), memory[0], kWords * 4), CUDA_SUCCESS);
  EXPECT_EQ(back, std::vector<uint32_t>(kWords, 3));
  EXPECT_EQ(CU(cuMemcpyPeer)(memory[1], nullptr, memory[0], context[0], 4), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SimPeers, KernelsNeedPeerAccess) {
  CUfunction function = load("berth_fill");
  uint64_t words = kWords;
  uint32_t seed = 5;
  void* arguments[] = {&memory[1], &words, &seed};
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(context[1], 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(context[0], 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuCtxDisablePeerAccess)(context[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  ASSERT_EQ(CU(cuCtxEnablePeerAccess)(context[1], 0), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxEnablePeerAccess)(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(launch(function, nullptr, arguments), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxDisablePeerAccess)(context[1]), CUDA_SUCCESS);
  CUcontext failing;
  ASSERT_EQ(CU(cuCtxCreate_v2)(&failing, 0, 0), CUDA_SUCCESS);
  function = load("berth_fill");
  EXPECT_EQ(launch(function, nullptr, arguments), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CU(cuCtxDestroy_v2)(failing), CUDA_SUCCESS);
}

}  // namespace
}  // namespace berth::sim
