#include "base/paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/test_folder.h"

namespace berth {

TEST(Paths, ADaemonsFilesAreNamedAfterItsSocket) {
  EXPECT_EQ(state_file_of("/run/x/berth.sock"), "/run/x/berth.db");
  EXPECT_EQ(log_file_of("/run/x/berth.sock"), "/run/x/berthd.log");
  EXPECT_EQ(state_file_of("/run/x/other.sock"), "/run/x/other.sock.db");
  EXPECT_EQ(log_file_of("/run/x/other.sock"), "/run/x/other.sock.log");
  EXPECT_EQ(state_file_of("/berth.sock/s"), "/berth.sock/s.db");
  EXPECT_EQ(state_file_of("berth.sock"), "berth.db");
  EXPECT_EQ(log_file_of("s"), "s.log");
}

TEST(Paths, WhatIsWrongWithAFolderIsSaid) {
  TestFolder place;
  const std::string& folder = place.path();
  EXPECT_EQ(folder_fault(folder + "/s"), "");
  EXPECT_EQ(folder_fault(folder + "/no/s"), "the folder " + folder + "/no does not exist");
  std::ofstream(folder + "/file") << "x";
  EXPECT_EQ(folder_fault(folder + "/file/s"), folder + "/file is no folder");
  if (::geteuid() != 0) {
    ::chmod(folder.c_str(), 0500);
    EXPECT_EQ(folder_fault(folder + "/s"), "you may not write to the folder " + folder);
    ::chmod(folder.c_str(), 0700);
  }
}

}  // namespace berth
