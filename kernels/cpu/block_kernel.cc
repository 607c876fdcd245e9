#include "kernels/cpu/block_kernel.h"

#include <cstring>

#include "kernels/cpu/vector_clones.h"

namespace dmuon::kernels {
namespace {

// What the portable kernel keeps in registers: kRows rows of two vectors.
constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 8;
using Vector __attribute__((vector_size(kWidth * sizeof(float)))) = float;

// Adds left * right to kRows rows of c, from column `col` on.
inline void AddProduct(const float* left, const float* right, int64_t col, float* c) {
  Vector sums[kRows][2];
  for (int64_t i = 0; i < kRows; ++i) {
    std::memcpy(sums[i], c + i * kBlockSide + col, sizeof(sums[i]));
  }
  for (int64_t k = 0; k < kBlockSide; ++k) {
    Vector values[2];
    std::memcpy(values, right + k * kBlockSide + col, sizeof(values));
    for (int64_t i = 0; i < kRows; ++i) {
      const float factor = left[i * kBlockSide + k];
      sums[i][0] += factor * values[0];
      sums[i][1] += factor * values[1];
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    std::memcpy(c + i * kBlockSide + col, sums[i], sizeof(sums[i]));
  }
}

DMUON_VECTOR_CLONES
void MultiplyPortably(const float* left, int64_t left_stride, const float* right, int64_t count,
                      float* c) {
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t row = 0; row < kBlockSide; row += kRows) {
      for (int64_t col = 0; col < kBlockSide; col += 2 * kWidth) {
        AddProduct(left + b * left_stride + row * kBlockSide, right + b * kBlockElements, col,
                   c + row * kBlockSide);
      }
    }
  }
}

}  // namespace

BlockKernel::BlockKernel(int64_t left_stride)
    : left_stride_(left_stride), generated_(GenerateBlockKernel(left_stride)) {}

void BlockKernel::Run(const float* left, const float* right, int64_t count, bool add,
                      float* c) const {
  if (const auto code = add ? generated_.next : generated_.first; code != nullptr) {
    RunGenerated(code, left, right, count, c);
    return;
  }
  if (!add) {
    std::memset(c, 0, kBlockElements * sizeof(float));
  }
  MultiplyPortably(left, left_stride_, right, count, c);
}

}  // namespace dmuon::kernels
