#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "proto/file_error.h"
#include "proto/safetensors.h"
#include "proto/safetensors_format.h"
#include "proto/strict_json.h"

namespace dmuon {
namespace {

constexpr size_t kHeaderAlignment = 8;

// The file under its temporary name; gone again unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(path), temporary_(path + ".tmp." + std::to_string(getpid())) {
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      FailWithErrno(temporary_, "cannot be created");
    }
  }
  ~TemporaryFile() {
    if (fd_ >= 0) {
      close(fd_);
      unlink(temporary_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void Write(const void* data, size_t bytes) {
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

  void SyncAndRename() {
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

 private:
  // Makes the new name last. Not every file system can; the data itself is safe by now.
  void SyncDirectory() {
    const size_t slash = path_.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
      fsync(fd);
      close(fd);
    }
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

int64_t BytesOf(const TensorToWrite& tensor) {
  int64_t bytes = SizeOf(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    bytes *= extent;
  }
  return bytes;
}

std::string MakeHeader(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header[std::string(kSafetensorsMetadata)] = metadata;
  }
  size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (static_cast<size_t>(BytesOf(tensor)) != tensor.data.size()) {
      throw std::runtime_error(path + ": tensor '" + tensor.name + "' has " +
                               std::to_string(tensor.data.size()) + " bytes, its shape takes " +
                               std::to_string(BytesOf(tensor)));
    }
    if (header.contains(tensor.name)) {
      throw std::runtime_error(path + ": tensor '" + tensor.name + "' is there twice");
    }
    const size_t end = offset + tensor.data.size();
    header[tensor.name] = {{"dtype", spec::NameIn(kSafetensorsDTypes, tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    throw std::runtime_error(path + ": a name is not valid UTF-8: " + error.what());
  }
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

}  // namespace

void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::string header = MakeHeader(path, tensors, metadata);
  const auto header_bytes = static_cast<uint64_t>(header.size());
  TemporaryFile file(path);
  file.Write(&header_bytes, sizeof(header_bytes));
  file.Write(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) {
    file.Write(tensor.data.data(), tensor.data.size());
  }
  file.SyncAndRename();
}

}  // namespace dmuon
