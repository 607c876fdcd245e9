#include "kernels/cpu/block_operations.h"

#include <array>
#include <cstring>

#include "kernels/cpu/vector_clones.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kSquare = 8;
using Row __attribute__((vector_size(kSquare * sizeof(float)))) = float;
using Square = std::array<Row, kSquare>;

inline __attribute__((always_inline)) void LoadSquare(const float* from, Square& square) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSquare; ++i) {
    std::memcpy(&square[i], from + i * kBlockSide, sizeof(Row));
  }
}

inline __attribute__((always_inline)) void StoreSquare(const Square& square, float* to) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSquare; ++i) {
    std::memcpy(to + i * kBlockSide, &square[i], sizeof(Row));
  }
}

// In three steps: pairs of neighbours, of rows two apart, of rows four apart.
inline __attribute__((always_inline)) void Transpose(Square& square) {
  Square pairs;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSquare; i += 2) {
    pairs[i] = __builtin_shufflevector(square[i], square[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(square[i], square[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  Square quads;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSquare; i += 4) {
#pragma GCC unroll 8
    for (int64_t j = 0; j < 2; ++j) {
      const Row& low = pairs[i + j];
      const Row& high = pairs[i + j + 2];
      quads[i + 2 * j] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * j + 1] = __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < 4; ++i) {
    square[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    square[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace

DMUON_VECTOR_CLONES
void CombineBlock(float factor, const float* sums, float addend_factor, const float* addend,
                  float* to) {
  for (int64_t i = 0; i < kBlockElements; ++i) {
    to[i] = factor * sums[i] + addend_factor * addend[i];
  }
}

DMUON_VECTOR_CLONES
void ScaleBlock(float factor, const float* sums, float* to) {
  for (int64_t i = 0; i < kBlockElements; ++i) {
    to[i] = factor * sums[i];
  }
}

DMUON_VECTOR_CLONES
void TransposeBlock(const float* from, float* to) {
  for (int64_t i = 0; i < kBlockSide; i += kSquare) {
    for (int64_t j = 0; j < kBlockSide; j += kSquare) {
      Square square;
      LoadSquare(from + i * kBlockSide + j, square);
      Transpose(square);
      StoreSquare(square, to + j * kBlockSide + i);
    }
  }
}

DMUON_VECTOR_CLONES
void MirrorBlock(float* block) {
  for (int64_t i = 0; i < kBlockSide; i += kSquare) {
    for (int64_t j = 0; j < i; j += kSquare) {
      Square square;
      LoadSquare(block + i * kBlockSide + j, square);
      Transpose(square);
      StoreSquare(square, block + j * kBlockSide + i);
    }
    for (int64_t a = i; a < i + kSquare; ++a) {
      for (int64_t b = i; b < a; ++b) {
        block[b * kBlockSide + a] = block[a * kBlockSide + b];
      }
    }
  }
}

}  // namespace dmuon::kernels
