#include "daemon/transport/job_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace dmuon {
namespace {

// Makes a file of one page; `mapped` says whether this process maps it.
std::string MakeFile(const std::string& folder, bool mapped) {
  std::string path = folder + "/dmuon-test-XXXXXX";
  int file = mkstemp(path.data());
  EXPECT_GE(file, 0) << path;
  EXPECT_EQ(ftruncate(file, 4096), 0);
  if (mapped) {
    EXPECT_NE(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0), MAP_FAILED);
  }
  close(file);
  return path;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

TEST(JobFiles, RemovesWhatThisProcessMapsInSharedMemory) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm is not writable here";
  std::string ours = MakeFile("/dev/shm", true);
  std::string of_others = MakeFile("/dev/shm", false);
  std::string elsewhere = MakeFile("/tmp", true);
  RemoveJobFiles();
  EXPECT_FALSE(Exists(ours));
  EXPECT_TRUE(Exists(of_others));
  EXPECT_TRUE(Exists(elsewhere));
  RemoveJobFiles();  // what is gone already is no error
  unlink(of_others.c_str());
  unlink(elsewhere.c_str());
}

}  // namespace
}  // namespace dmuon
