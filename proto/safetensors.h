// Reading and writing safetensors files: 8 bytes header length, a JSON header, tensors row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/dtype.h"

namespace dmuon {

class MappedFile;

struct TensorInfo {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the data section
  int64_t bytes = 0;
};

// A file opened for reading, memory-mapped. Throws std::runtime_error naming file and cause: not
// there, truncated, header not JSON, overlapping or out-of-range tensors, unsupported dtype.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // Valid as long as the file object; not necessarily aligned. Throws if there is no such tensor.
  std::span<const std::byte> data(const std::string& name) const;

 private:
  std::string path_;
  std::map<std::string, TensorInfo> tensors_;
  std::unique_ptr<const MappedFile> file_;
  std::span<const std::byte> data_;  // the file's data section
};

// A tensor to be written; does not own its bytes.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes atomically: to a temporary name beside `path`, fsync, rename. Throws std::runtime_error.
void WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace dmuon
