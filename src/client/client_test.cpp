// The smaller parts: signals by name, programs, the loader's cache, the daemon's last word.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "client/daemon.h"
#include "client/driver_files.h"
#include "client/fake_daemon.h"
#include "client/job.h"
#include "client/program.h"
#include "client/signals.h"

namespace berth::client {

TEST(Signals, NamesAndNumbers) {
  for (const char* text : {"TERM", "SIGTERM", "term", "sigterm", "15"}) EXPECT_EQ(parse_signal(text), SIGTERM) << text;
  EXPECT_EQ(parse_signal("RTMIN+1"), SIGRTMIN + 1);
  EXPECT_EQ(parse_signal("SIGRTMAX"), SIGRTMAX);
  for (const char* text : {"", "0", "-1", "65", "TERMINATE", "SIG", "RTMIN+99", "1x", " 9"})
    EXPECT_FALSE(parse_signal(text).has_value()) << text;
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(40), "signal 40");
}

namespace {

std::string write_program(const TestFolder& folder, const std::string& name, const std::string& text, mode_t mode) {
  std::string path = folder.file(name);
  std::ofstream(path) << text;
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

}  // namespace

TEST(Program, FoundAsAShellFindsIt) {
  TestFolder folder;
  std::string path = write_program(folder, "prog", "#!/bin/sh\n", 0755);
  write_program(folder, "data", "x", 0644);
  std::string before = std::getenv("PATH");
  ::setenv("PATH", ("/nonexistent:" + folder.file("")).c_str(), 1);
  EXPECT_EQ(::access(find_program("prog")->path.c_str(), X_OK), 0);
  EXPECT_EQ(find_program("data").error().code, "not_executable");
  EXPECT_EQ(find_program("nothing").error().code, "not_found");
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(find_program(path)->path, path);
  EXPECT_EQ(find_program(folder.file("")).error().code, "not_executable");
  EXPECT_EQ(find_program(folder.file("nothing")).error().code, "not_found");
  EXPECT_EQ(find_program("").error().code, "not_found");
}

TEST(Program, AnInterpreterThatIsMissingIsNamed) {
  TestFolder folder;
  auto error = [&](const std::string& text) {
    auto program = find_program(write_program(folder, "script", text, 0755));
    return program ? Error{"fine", ""} : program.error();
  };
  EXPECT_EQ(error("#!/bin/sh\n").code, "fine");
  EXPECT_EQ(error("#! \t/bin/sh -e\n").code, "fine");
  EXPECT_EQ(error("#!/bin/sh").code, "fine");
  EXPECT_EQ(error("#!\n").code, "fine");
  EXPECT_EQ(error("#!").code, "fine");
  EXPECT_EQ(error("#!/no/such -x\n").code, "not_found");
  EXPECT_EQ(error("#!/no/such -x\n").message,
            "cannot execute " + folder.file("script") + ": its interpreter /no/such was not found");
  EXPECT_NE(error("#!/bin/sh\r\n").message.find("carriage return"), std::string::npos);
  EXPECT_EQ(error("#!" + write_program(folder, "data", "x", 0644) + "\n").code, "not_executable");
  // A program whose loader is not here; then one that is cut off.
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::string self((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  size_t loader = self.find("/ld-linux");
  ASSERT_NE(loader, std::string::npos);
  self[loader + 1] = 'x';
  EXPECT_EQ(error(self).code, "not_found");
  EXPECT_NE(error(self).message.find("/xd-linux"), std::string::npos);
  for (size_t length = 0; length <= 512; ++length) error(self.substr(0, length));
}

TEST(Program, ThirtyTwoBitsAndContainerTools) {
  TestFolder folder;
  std::string elf("\x7f" "ELF\1\1\1", 7);
  elf.resize(52, '\0');
  EXPECT_TRUE(find_program(write_program(folder, "old", elf, 0755))->is_32_bit);
  EXPECT_FALSE(find_program("sh")->is_32_bit);
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"docker", "run", "x"}, Words{"/usr/bin/podman", "--log-level", "debug", "create", "x"},
        Words{"nerdctl", "-n", "k8s.io", "exec", "x", "sh"}, Words{"docker", "compose", "-f", "file", "up"},
        Words{"docker", "--context=far", "container", "start", "x"}, Words{"podman", "kube", "play", "x"},
        Words{"docker-compose", "up"}})
    EXPECT_TRUE(starts_container(words)) << ::testing::PrintToString(words);
  for (const Words& words :
       {Words{"docker"}, Words{"podman", "ps"}, Words{"podman", "--log-level", "debug", "ps"}, Words{"docker", "--version"},
        Words{"docker", "compose", "ps"}, Words{"docker", "container", "ls"}, Words{"podman", "logs", "run"},
        Words{"dockerd", "run"}, Words{"python", "run"}, Words{"./podman.sh", "run"}})
    EXPECT_FALSE(starts_container(words)) << ::testing::PrintToString(words);
}

namespace {

void put(std::string* text, size_t at, uint32_t value) { std::memcpy(text->data() + at, &value, sizeof value); }

// An ld.so.cache with one entry for `library`, behind `before`.
std::string loader_cache(const std::string& before, const std::string& library, const std::string& path, uint32_t count = 1) {
  std::string body(48 + 24, '\0');
  std::memcpy(body.data(), "glibc-ld.so.cache1.1", 20);
  put(&body, 20, count);
  put(&body, 48 + 4, static_cast<uint32_t>(body.size()));
  put(&body, 48 + 8, static_cast<uint32_t>(body.size() + library.size() + 1));
  return before + body + library + '\0' + path + '\0';
}

}  // namespace

TEST(DriverFiles, LoaderCacheIsReadAndNeverTrusted) {
  std::vector<std::string> expected{"/usr/lib/libcuda.so.1"};
  EXPECT_EQ(paths_in_loader_cache(loader_cache("", "libcuda.so.1", expected[0]), "libcuda.so.1"), expected);
  EXPECT_EQ(paths_in_loader_cache(loader_cache("ld.so-1.7.0....", "libcuda.so.1", expected[0]), "libcuda.so.1"), expected);
  EXPECT_TRUE(paths_in_loader_cache(loader_cache("", "libcuda.so", expected[0]), "libcuda.so.1").empty());
  std::string whole = loader_cache("", "libcuda.so.1", expected[0], 0xffffffff);
  for (size_t length = 0; length <= whole.size(); ++length) {
    auto found = paths_in_loader_cache(whole.substr(0, length), "libcuda.so.1");
    EXPECT_LE(found.size(), 1u);
  }
}

TEST(Daemon, LastWordOfTheLog) {
  TestFolder folder;
  std::string log = folder.file("log");
  EXPECT_EQ(last_line_of(log), "");
  std::ofstream(log) << "old\n";
  EXPECT_EQ(last_line_of(log), "old");
  EXPECT_EQ(last_line_of(log, 4), "");
  std::ofstream(log, std::ios::app) << "first\nsecond\n\n";
  EXPECT_EQ(last_line_of(log, 4), "second");
}

TEST(Job, WhatIsNotGivenIsNull) {
  JobRequest request;
  request.command = {"a", "b"};
  Json json = admit_request(request);
  EXPECT_EQ(json["op"], "admit");
  for (const char* key : {"name", "memory", "max_share_ratio", "max_slowdown_ratio", "device", "visible_devices"})
    EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_EQ(json["wait_seconds"], 0);
  request.memory = "8G";
  EXPECT_EQ(admit_request(request)["memory"], "8G");
}

}  // namespace berth::client
