// A file that takes its place whole or not at all. Internal to proto/ and scheduler/.
#pragma once

#include <cstddef>
#include <string>

namespace dmuon {

// Written under a temporary name in the same directory; gone again unless it was renamed.
// Everything throws std::runtime_error naming file and cause.
class TemporaryFile {
 public:
  // Replaces what `temporary` may hold.
  TemporaryFile(std::string path, std::string temporary);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void Write(const void* data, size_t bytes);
  // The contents reach the disk, then the file appears as `path`, replacing what is there.
  void SyncAndRename();

 private:
  void SyncDirectory();

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace dmuon
