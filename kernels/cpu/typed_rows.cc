#include "kernels/cpu/typed_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/vector_clones.h"

namespace dmuon::kernels {

DMUON_VECTOR_CLONES
void LoadRow(ElementType type, const void* from, int64_t first, int64_t count, float* to) {
  const auto* halves = static_cast<const uint16_t*>(from) + (SizeOf(type) == 2 ? first : 0);
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(to, static_cast<const float*>(from) + first, count * sizeof(float));
      return;
    case ElementType::kBFloat16:
      std::transform(halves, halves + count, to, FloatFromBFloat16);
      return;
    case ElementType::kFloat16:
      std::transform(halves, halves + count, to, FloatFromFloat16);
      return;
  }
}

DMUON_VECTOR_CLONES
void StoreRow(ElementType type, const float* from, int64_t count, void* to, int64_t first) {
  auto* halves = static_cast<uint16_t*>(to) + (SizeOf(type) == 2 ? first : 0);
  switch (type) {
    case ElementType::kFloat32:
      std::memcpy(static_cast<float*>(to) + first, from, count * sizeof(float));
      return;
    case ElementType::kBFloat16:
      std::transform(from, from + count, halves, BFloat16FromFloat);
      return;
    case ElementType::kFloat16:
      std::transform(from, from + count, halves, Float16FromFloat);
      return;
  }
}

DMUON_VECTOR_CLONES
void RoundRow(ElementType type, int64_t count, float* values) {
  if (type == ElementType::kBFloat16) {
    std::transform(values, values + count, values, RoundToBFloat16);
  } else if (type == ElementType::kFloat16) {
    std::transform(values, values + count, values,
                   [](float value) { return FloatFromFloat16(Float16FromFloat(value)); });
  }
}

}  // namespace dmuon::kernels
