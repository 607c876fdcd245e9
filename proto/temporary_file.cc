#include "proto/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "proto/file_error.h"

namespace dmuon {

TemporaryFile::TemporaryFile(std::string path, std::string temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    FailWithErrno(temporary_, "cannot be created");
  }
}

TemporaryFile::~TemporaryFile() {
  if (fd_ >= 0) {
    close(fd_);
    unlink(temporary_.c_str());
  }
}

void TemporaryFile::Write(const void* data, size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(fd_, next, bytes);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      FailWithErrno(path_, "cannot be written");
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void TemporaryFile::SyncAndRename() {
  if (fsync(fd_) != 0) {
    FailWithErrno(path_, "cannot be flushed to disk");
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    FailWithErrno(path_, "cannot be renamed from " + temporary_);
  }
  close(fd_);
  fd_ = -1;
  SyncDirectory();
}

// Makes the new name last. Not every file system can; the data itself is safe by now.
void TemporaryFile::SyncDirectory() {
  const size_t slash = path_.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

}  // namespace dmuon
