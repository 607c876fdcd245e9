#include <unistd.h>

#include <stdexcept>

#include "proto/safetensors.h"
#include "proto/safetensors_format.h"
#include "proto/strict_json.h"
#include "proto/temporary_file.h"

namespace dmuon {
namespace {

constexpr size_t kHeaderAlignment = 8;

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
  TemporaryFile file(path, path + ".tmp." + std::to_string(getpid()));
  file.Write(&header_bytes, sizeof(header_bytes));
  file.Write(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) {
    file.Write(tensor.data.data(), tensor.data.size());
  }
  file.SyncAndRename();
}

}  // namespace dmuon
