#include "daemon/cgroup_processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/test_folder.h"

namespace berth::daemon {
namespace {

class CgroupProcessesTest : public ::testing::Test {
 protected:
  void group(const std::string& path, const std::string& processes = "") {
    std::filesystem::create_directories(mount_ + path);
    std::ofstream(mount_ + path + "/cgroup.procs") << processes;
  }
  std::vector<pid_t> pids(const std::string& cgroup) {
    std::vector<pid_t> result;
    for (ProcessId process : processes_of_cgroup(mount_, cgroup)) result.push_back(process.pid);
    return result;
  }

  TestFolder folder_;
  const std::string& mount_ = folder_.path();
  const pid_t self_ = ::getpid(), parent_ = ::getppid();
  const std::string both_ = std::to_string(self_) + "\n" + std::to_string(parent_) + "\n";
};

}  // namespace

TEST_F(CgroupProcessesTest, UnifiedHierarchyAlone) {
  group("");
  group("/box", std::to_string(self_) + "\n999999999\n");
  group("/box/inner", std::to_string(parent_) + "\n");
  group("/slice/box", both_);  // another group, though its path ends alike
  group("/slice/other");
  EXPECT_EQ(pids("/box").size(), 2u);
  EXPECT_EQ(pids("/box/inner"), std::vector{parent_});
  EXPECT_TRUE(pids("/other").empty());
  EXPECT_TRUE(pids("/missing").empty());
}

TEST_F(CgroupProcessesTest, HierarchiesOfControllersAndTheUnifiedOneBesideThem) {
  for (const char* hierarchy : {"/memory", "/pids", "/unified"}) group(hierarchy);
  group("/memory/box", std::to_string(self_) + "\n");
  group("/pids/box", both_);
  group("/unified/only", std::to_string(self_) + "\n");
  std::filesystem::create_directory_symlink("pids", mount_ + "/cpu");
  EXPECT_EQ(pids("/box").size(), 2u);  // each once
  EXPECT_EQ(pids("/only"), std::vector{self_});
}

}  // namespace berth::daemon
