// Transposition of a piece of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace dmuon::kernels {

inline constexpr int64_t kTransposeSquare = 4;

// One square, in vector registers.
inline void TransposeSquare(const float* from, int64_t from_ld, float* to, int64_t to_ld) {
  using Row __attribute__((vector_size(kTransposeSquare * sizeof(float)))) = float;
  Row rows[kTransposeSquare];
  for (int64_t i = 0; i < kTransposeSquare; ++i) {
    std::memcpy(&rows[i], from + i * from_ld, sizeof(Row));
  }
  const Row low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Row high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Row low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Row high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  for (int64_t i = 0; i < kTransposeSquare; ++i) {
    std::memcpy(to + i * to_ld, &rows[i], sizeof(Row));
  }
}

// to[j * to_ld + i] = from[i * from_ld + j] for i < rows, j < cols.
inline void Transpose(const float* from, int64_t from_ld, int64_t rows, int64_t cols, float* to,
                      int64_t to_ld) {
  for (int64_t i = 0; i < rows; i += kTransposeSquare) {
    for (int64_t j = 0; j < cols; j += kTransposeSquare) {
      const float* source = from + i * from_ld + j;
      float* target = to + j * to_ld + i;
      if (i + kTransposeSquare <= rows && j + kTransposeSquare <= cols) {
        TransposeSquare(source, from_ld, target, to_ld);
        continue;
      }
      for (int64_t b = 0; b < std::min(kTransposeSquare, cols - j); ++b) {
        for (int64_t a = 0; a < std::min(kTransposeSquare, rows - i); ++a) {
          target[b * to_ld + a] = source[a * from_ld + b];
        }
      }
    }
  }
}

}  // namespace dmuon::kernels
