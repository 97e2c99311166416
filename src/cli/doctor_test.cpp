#include "cli/doctor.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "cli/exports.h"
#include "cli/probe.h"

namespace berth::cli {

TEST(Doctor, WorstDecides) {
  Checks checks{{"a", Health::ok, "x", ""}};
  EXPECT_EQ(doctor_exit_code(checks), 0);
  checks.push_back({"b", Health::warning, "y", "do z"});
  EXPECT_EQ(doctor_exit_code(checks), 1);
  EXPECT_EQ(doctor_text(checks, false), "ok      a  x\nwarning b  y\n           > do z\nSharing works here, with the warnings above.\n");
  checks.push_back({"c", Health::failed, "", ""});
  EXPECT_EQ(doctor_exit_code(checks), 2);
  Json json = doctor_json(checks);
  EXPECT_EQ(json["result"], "failed");
  EXPECT_EQ(json["checks"][1]["advice"], "do z");
  EXPECT_TRUE(json["checks"][0]["advice"].is_null());
}

TEST(Doctor, ProbesOutliveWhatTheyTry) {
  EXPECT_EQ(*probe([] { return std::string(200000, 'x'); }, std::chrono::seconds(60)), std::string(200000, 'x'));
  auto crashed = probe([]() -> std::string { ::raise(SIGKILL); return ""; }, std::chrono::seconds(60));
  ASSERT_FALSE(crashed.ok());
  EXPECT_EQ(crashed.error().message, "it ended by SIGKILL");
  auto hung = probe([]() -> std::string { for (;;) ::pause(); }, std::chrono::seconds(0));
  ASSERT_FALSE(hung.ok());
  EXPECT_EQ(hung.error().code, "timeout");
}

TEST(Doctor, ChildrenGetTheirEnvironment) {
  auto child = Child::execute({"sh", "-c", "echo $BERTH_TEST_WORD; exit 7"}, {"BERTH_TEST_WORD=here"});
  ASSERT_TRUE(child.ok());
  int status = 0;
  EXPECT_EQ(*child->output(std::chrono::seconds(60), &status), "here\n");
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Doctor, ExportsAreReadWithoutTrust) {
  std::ifstream maps("/proc/self/maps");
  std::string line, libc;
  while (std::getline(maps, line))
    if (size_t at = line.find('/'); at != std::string::npos && line.find("/libc.so.6") != std::string::npos) libc = line.substr(at);
  ASSERT_FALSE(libc.empty());
  auto names = exported_functions(libc);
  ASSERT_TRUE(names.ok());
  EXPECT_TRUE(names->count("malloc"));
  EXPECT_FALSE(names->count("environ"));  // data
  EXPECT_FALSE(exported_functions("/dev/null").ok());

  std::ifstream in(libc, std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  char path[] = "/tmp/berth-test-XXXXXX";
  ASSERT_GE(::mkstemp(path), 0);
  for (size_t part : {1u, 3u, 10u, 100u, 1000u, 100000u}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(whole.data(), static_cast<long>(whole.size() - whole.size() / part));
    auto cut = exported_functions(path);
    EXPECT_TRUE(!cut.ok() || cut->size() <= names->size()) << part;
  }
  ::unlink(path);
}

}  // namespace berth::cli
