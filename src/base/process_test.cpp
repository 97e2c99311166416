#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

namespace berth {
namespace {

// A child that waits until it is killed.
pid_t waiting_child() {
  pid_t pid = ::fork();
  if (pid == 0)
    for (;;) ::pause();
  return pid;
}

void end_child(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

}  // namespace

TEST(Process, AProcessIsItsPidAndStartTime) {
  auto self = read_process(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_TRUE(is_running(self->id));
  ProcessId other = self->id;
  other.start_time += 1;
  EXPECT_FALSE(is_running(other));
  EXPECT_FALSE(read_process(0));
  EXPECT_FALSE(open_process(-1));
}

TEST(Process, ParentChainLeadsFromChildToParent) {
  pid_t child = waiting_child();
  auto chain = parent_chain(child);
  ASSERT_GE(chain.size(), 2u);
  EXPECT_EQ(chain[0].pid, child);
  EXPECT_EQ(chain[1], read_process(::getpid())->id);
  end_child(child);
}

TEST(Process, DescendantsAreFoundAndZombiesAreNot) {
  pid_t child = waiting_child(), other = waiting_child();
  ProcessId self = read_process(::getpid())->id, first = read_process(child)->id;
  auto contains = [](const auto& list, ProcessId id) { return std::find(list.begin(), list.end(), id) != list.end(); };
  auto found = descendants({self});
  EXPECT_TRUE(contains(found, self));
  EXPECT_TRUE(contains(found, first));
  EXPECT_EQ(descendants({first}), std::vector<ProcessId>{first});
  auto seen = descendants_at_a_glance({self});
  EXPECT_EQ(std::set<ProcessId>(seen.begin(), seen.end()), std::set<ProcessId>(found.begin(), found.end()));
  ::kill(child, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(is_running(first));  // a zombie until it is reaped
  EXPECT_TRUE(descendants({first}).empty());
  end_child(child);
  end_child(other);
}

TEST(Process, APidfdReachesTheVeryProcess) {
  pid_t child = waiting_child();
  auto process = open_process(child);
  ASSERT_TRUE(process);
  EXPECT_TRUE(signal_process(*process, SIGKILL));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(signal_process(*process, SIGKILL));
}

TEST(Process, KnowsNameAndBoot) {
  EXPECT_FALSE(short_command_of(::getpid()).empty());
  EXPECT_EQ(boot_id().size(), 36u);
  EXPECT_EQ(boot_id(), boot_id());
}

}  // namespace berth
