// A regular file mapped into memory for reading. Internal to proto/.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dmuon {

class MappedFile {
 public:
  // Throws std::runtime_error naming file and cause: not there, not a regular file, empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace dmuon
