// Element types that cross the project's seams.
#pragma once

#include <cstdint>
#include <string_view>

namespace dmuon {

enum class DType { kFloat32, kBFloat16, kFloat16, kInt64 };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
      return 8;
    default:
      return 2;
  }
}

// The spec's spelling: "fp32", "bf16", "fp16"; "int64" occurs in state files only.
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kInt64:
      return "int64";
  }
  return "?";
}

}  // namespace dmuon
