#include "proto/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "proto/file_error.h"

namespace dmuon {
namespace {

// A read-only file descriptor that closes itself.
class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const FileDescriptor file(path);
  if (file.get() < 0) {
    FailWithErrno(path, "cannot be opened");
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    FailWithErrno(path, "cannot be examined");
  }
  if (!S_ISREG(info.st_mode)) {
    throw std::runtime_error(path + ": is not a regular file");
  }
  if (info.st_size == 0) {
    throw std::runtime_error(path + ": is empty; expected a safetensors file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    FailWithErrno(path, "cannot be mapped into memory");
  }
  bytes_ = {static_cast<const std::byte*>(mapping), size};
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

}  // namespace dmuon
