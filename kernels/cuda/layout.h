// Index arithmetic of the CUDA backend. Free of CUDA, so that it can be tested on any machine.
#pragma once

#include <cstdint>

namespace dmuon::kernels::cuda {

inline constexpr int kThreads = 256;
inline constexpr int64_t kMaxBlocks = 65535;
inline constexpr int64_t kNormBlock = 65536;  // elements of one fp64 partial sum
inline constexpr int kNormThreads = 512;      // threads that make one: fixes the order of its sum
// Blocks of kCopyTile x kCopyRows threads move tiles of kCopyTile x kCopyTile elements.
inline constexpr int kCopyTile = 32;
inline constexpr int kCopyRows = 8;
// Sides of X and of its squares are rounded up to this: 16 bytes of the narrowest type, which the
// tensor cores and cuBLAS's alignment rule ask for.
inline constexpr int64_t kSideUnit = 8;

constexpr int64_t CeilDivide(int64_t count, int64_t part) { return (count + part - 1) / part; }
constexpr int64_t RoundUp(int64_t count, int64_t part) { return CeilDivide(count, part) * part; }

// Blocks of a grid-stride loop over `count` elements: at least one, at most kMaxBlocks.
constexpr int64_t GridFor(int64_t count) {
  const int64_t blocks = CeilDivide(count, kThreads);
  return blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks;
}

constexpr int64_t NormBlocks(int64_t count) { return CeilDivide(count, kNormBlock); }

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
};

// Piece `index` of a run of `count` elements that is cut every `piece` elements.
constexpr Range PieceRange(int64_t index, int64_t piece, int64_t count) {
  const int64_t begin = index * piece;
  const int64_t end = begin + piece;
  return {begin, end < count ? end : count};
}

constexpr Range NormBlockRange(int64_t block, int64_t count) {
  return PieceRange(block, kNormBlock, count);
}

// A rows x cols matrix whose X is m x n with m <= n: transposed if it is higher than wide. X lies
// row-major in padded_m x padded_n elements, the padding zero: zero rows and columns stay zero
// through the iteration and change nothing else.
struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  constexpr bool transposed() const { return rows > cols; }
  constexpr int64_t m() const { return transposed() ? cols : rows; }
  constexpr int64_t n() const { return transposed() ? rows : cols; }
  constexpr int64_t padded_m() const { return RoundUp(m(), kSideUnit); }
  constexpr int64_t padded_n() const { return RoundUp(n(), kSideUnit); }
  constexpr int64_t count() const { return rows * cols; }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

// A place in a matrix, or of a tile among tiles.
struct Place {
  int64_t row = 0;
  int64_t col = 0;
};

// Tile `index` of a matrix of `cols` columns cut into squares of kCopyTile, row by row; its first
// element.
constexpr int64_t CopyTiles(int64_t rows, int64_t cols) {
  return CeilDivide(rows, kCopyTile) * CeilDivide(cols, kCopyTile);
}
constexpr Place CopyTileAt(int64_t index, int64_t cols) {
  const int64_t per_row = CeilDivide(cols, kCopyTile);
  return {index / per_row * kCopyTile, index % per_row * kCopyTile};
}

// Tiles of a lower triangle, row by row: (0,0), (1,0), (1,1), (2,0)...
constexpr int64_t TriangleTiles(int64_t side) { return side * (side + 1) / 2; }
constexpr Place TriangleTileAt(int64_t index) {
  int64_t row = 0;  // the largest one that begins at or before `index`; below 2^31
  for (int64_t bit = int64_t{1} << 30; bit > 0; bit /= 2) {
    if (TriangleTiles(row + bit) <= index) {
      row += bit;
    }
  }
  return {row, index - TriangleTiles(row)};
}

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
