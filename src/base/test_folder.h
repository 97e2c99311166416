// For tests: a folder that goes with all that is in it.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace berth {

class TestFolder {
 public:
  TestFolder() {
    char pattern[] = "/tmp/berth-test-XXXXXX";
    if (!::mkdtemp(pattern)) std::abort();
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace berth
