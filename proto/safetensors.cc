#include "proto/safetensors.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "proto/mapped_file.h"
#include "proto/safetensors_format.h"
#include "proto/spec_reader.h"

namespace dmuon {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 3;                       // header > tensor > shape
constexpr size_t kMaxDimensions = 16;
constexpr int64_t kMaxElements = int64_t{1} << 42;

size_t HeaderBytes(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    throw SpecError("is truncated: " + std::to_string(file.size()) +
                    " bytes, less than the header's length takes");
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    throw SpecError("is not a safetensors file: its first 8 bytes announce a header of " +
                    std::to_string(header_bytes) + " bytes");
  }
  if (header_bytes > file.size() - kLengthBytes) {
    throw SpecError("is truncated inside its header of " + std::to_string(header_bytes) + " bytes");
  }
  return static_cast<size_t>(header_bytes);
}

std::vector<int64_t> ReadTensorShape(const Json& value, const spec::KeyPath& path) {
  if (!value.is_array() || value.size() > kMaxDimensions) {
    spec::Refuse(path, Excerpt(value) + " is not a list of at most " +
                           std::to_string(kMaxDimensions) + " sizes");
  }
  std::vector<int64_t> shape;
  int64_t elements = 1;  // 0 once a size is 0
  for (size_t i = 0; i < value.size(); ++i) {
    const int64_t size = spec::ReadInteger(value[i], spec::KeyPath(path, i), 0, kMaxElements);
    if (elements > 0 && size > kMaxElements / elements) {
      spec::Refuse(path,
                   Excerpt(value) + " has more than " + std::to_string(kMaxElements) + " elements");
    }
    elements *= size;
    shape.push_back(size);
  }
  return shape;
}

int64_t Required(int64_t size, const std::vector<int64_t>& shape) {
  for (const int64_t extent : shape) {
    size *= extent;
  }
  return size;
}

const Json& Member(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const Json* value = spec::Find(object, key);
  if (value == nullptr) {
    spec::Refuse(spec::KeyPath(path, key), "missing");
  }
  return *value;
}

TensorInfo ReadTensor(const Json& entry, const spec::KeyPath& path, int64_t data_bytes) {
  spec::CheckKeys(entry, path, {"dtype", "shape", "data_offsets"});
  TensorInfo tensor;
  tensor.dtype = spec::ReadEnum(Member(entry, path, "dtype"), spec::KeyPath(path, "dtype"),
                                kSafetensorsDTypes);
  tensor.shape = ReadTensorShape(Member(entry, path, "shape"), spec::KeyPath(path, "shape"));
  const spec::KeyPath offsets_path(path, "data_offsets");
  const Json& offsets = Member(entry, path, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    spec::Refuse(offsets_path, Excerpt(offsets) + " is not a pair [begin, end]");
  }
  const auto limit = std::numeric_limits<int64_t>::max();
  tensor.offset = spec::ReadInteger(offsets[0], spec::KeyPath(offsets_path, size_t{0}), 0, limit);
  const int64_t end =
      spec::ReadInteger(offsets[1], spec::KeyPath(offsets_path, size_t{1}), 0, limit);
  if (end > data_bytes) {
    spec::Refuse(offsets_path, Excerpt(offsets) + " ends after the file's " +
                                   std::to_string(data_bytes) +
                                   " bytes of data; the file is truncated");
  }
  tensor.bytes = Required(SizeOf(tensor.dtype), tensor.shape);
  if (end < tensor.offset || end - tensor.offset != tensor.bytes) {
    spec::Refuse(offsets_path, Excerpt(offsets) + " does not hold the " +
                                   std::to_string(tensor.bytes) + " bytes of shape " +
                                   Excerpt(Json(tensor.shape)));
  }
  return tensor;
}

// Tensors follow each other without gap or overlap and fill the data section.
void CheckLayout(const std::map<std::string, TensorInfo>& tensors, int64_t data_bytes) {
  std::vector<std::pair<const TensorInfo*, const std::string*>> by_offset;
  by_offset.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    by_offset.emplace_back(&tensor, &name);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->offset, a.first->bytes) < std::pair(b.first->offset, b.first->bytes);
  });
  int64_t end = 0;
  for (const auto& [tensor, name] : by_offset) {
    if (tensor->offset != end) {
      throw SpecError("tensor '" + *name + "' starts at byte " + std::to_string(tensor->offset) +
                      " of the data, " +
                      (tensor->offset < end ? "overlapping another, which ends at byte "
                                            : "leaving a gap after byte ") +
                      std::to_string(end));
    }
    end += tensor->bytes;
  }
  if (end != data_bytes) {
    throw SpecError("has " + std::to_string(data_bytes - end) +
                    " bytes after its last tensor's end");
  }
}

std::map<std::string, TensorInfo> ReadHeader(std::string_view text, int64_t data_bytes) {
  const Json header = ParseStrictJson(text, kMaxDepth);
  if (!header.is_object()) {
    throw SpecError("its header is not a JSON object");
  }
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != kSafetensorsMetadata) {
      const std::string title = "tensor " + Excerpt(Json(name));
      tensors[name] = ReadTensor(entry, spec::KeyPath::Titled(title), data_bytes);
    }
  }
  CheckLayout(tensors, data_bytes);
  return tensors;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(std::make_unique<MappedFile>(path)) {
  const std::span<const std::byte> bytes = file_->bytes();
  try {
    const size_t header_bytes = HeaderBytes(bytes);
    data_ = bytes.subspan(kLengthBytes + header_bytes);
    tensors_ =
        ReadHeader({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes},
                   static_cast<int64_t>(data_.size()));
  } catch (const SpecError& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

SafetensorsFile::~SafetensorsFile() = default;

std::span<const std::byte> SafetensorsFile::data(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw std::runtime_error(path_ + ": has no tensor '" + name + "'");
  }
  return data_.subspan(static_cast<size_t>(found->second.offset),
                       static_cast<size_t>(found->second.bytes));
}

}  // namespace dmuon
