// Index arithmetic of the CUDA backend. Free of CUDA, so that it can be tested on any machine.
#pragma once

#include <cstdint>

namespace dmuon::kernels::cuda {

inline constexpr int kThreads = 256;
inline constexpr int64_t kMaxBlocks = 65535;
inline constexpr int64_t kNormBlock = 65536;  // elements of one fp64 partial sum

// Blocks of a grid-stride loop over `count` elements: at least one, at most kMaxBlocks.
constexpr int64_t GridFor(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks;
}

constexpr int64_t NormBlocks(int64_t count) { return (count + kNormBlock - 1) / kNormBlock; }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

constexpr Range NormBlockRange(int64_t block, int64_t count) {
  const int64_t begin = block * kNormBlock;
  const int64_t end = begin + kNormBlock;
  return {begin, end < count ? end : count};
}

// A rows x cols matrix whose X is m x n with m <= n: transposed if it is higher than wide.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  constexpr bool transposed() const { return rows > cols; }
  constexpr int64_t m() const { return transposed() ? cols : rows; }
  constexpr int64_t n() const { return transposed() ? rows : cols; }
  constexpr int64_t count() const { return rows * cols; }

  // Where element `index` of X (row-major m x n) lies in the matrix, and the other way round.
  constexpr int64_t MatrixIndex(int64_t index) const {
    return transposed() ? index % n() * cols + index / n() : index;
  }
  constexpr int64_t XIndex(int64_t index) const {
    return transposed() ? index % cols * n() + index / cols : index;
  }
};

// c[m x n] = left[m x k] * right, all row-major, as arguments for a column-major GEMM: the same
// memory read by columns is the transpose, and c^T = right^T * left^T.
struct ColumnMajorGemm {
  int64_t m = 0;  // rows of c^T
  int64_t n = 0;
  int64_t k = 0;
  bool first_transposed = false;  // the first operand is `right`, the second `left`
  int64_t first_ld = 0;
  int64_t second_ld = 0;
  int64_t out_ld = 0;
};

// `right` is k x n, or n x k to be used transposed.
constexpr ColumnMajorGemm MapRowMajor(int64_t m, int64_t n, int64_t k, bool right_transposed) {
  return {n, m, k, right_transposed, right_transposed ? k : n, k, n};
}

}  // namespace dmuon::kernels::cuda
