// The CUDA backend's index arithmetic, which needs no GPU.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/cuda/layout.h"

namespace dmuon::kernels::cuda {
namespace {

TEST(CudaLayout, GridCoversWithinLimits) {
  static_assert(GridFor(0) == 1 && GridFor(1) == 1 && GridFor(kThreads) == 1);
  static_assert(GridFor(kThreads + 1) == 2);
  static_assert(GridFor(int64_t{1} << 40) == kMaxBlocks);
}

TEST(CudaLayout, NormBlocksCoverOnce) {
  for (const int64_t count : {0L, 1L, 65535L, 65536L, 65537L, 200000L}) {
    int64_t next = 0;
    for (int64_t block = 0; block < NormBlocks(count); ++block) {
      const Range range = NormBlockRange(block, count);
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.end, range.begin);
      next = range.end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(CudaLayout, XIsWideAndPadded) {
  static_assert(Shape{3, 5}.m() == 3 && Shape{3, 5}.n() == 5 && !Shape{3, 5}.transposed());
  static_assert(Shape{9, 5}.m() == 5 && Shape{9, 5}.n() == 9 && Shape{9, 5}.transposed());
  static_assert(Shape{9, 5}.padded_m() == 8 && Shape{9, 5}.padded_n() == 16);
  static_assert(Shape{64, 5464}.padded_n() == 5464 && Shape{4, 4}.count() == 16);
}

TEST(CudaLayout, TilesOfATriangleComeRowByRow) {
  int64_t index = 0;
  for (int64_t row = 0; row < 50; ++row) {
    EXPECT_EQ(TriangleTiles(row), index);
    for (int64_t col = 0; col <= row; ++col, ++index) {
      EXPECT_EQ(TriangleTileAt(index).row, row);
      EXPECT_EQ(TriangleTileAt(index).col, col);
    }
  }
  static_assert(TriangleTileAt(TriangleTiles(1 << 20) - 1).row == (1 << 20) - 1);
  static_assert(TriangleTileAt(TriangleTiles(1 << 20)).col == 0);
}

TEST(CudaLayout, CopyTilesCoverOnce) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {33, 64}, {64, 100}}) {
    std::vector<int> covered(rows * cols);
    for (int64_t tile = 0; tile < CopyTiles(rows, cols); ++tile) {
      const Place at = CopyTileAt(tile, cols);
      for (int64_t i = at.row; i < at.row + kCopyTile && i < rows; ++i) {
        for (int64_t j = at.col; j < at.col + kCopyTile && j < cols; ++j) {
          ++covered[i * cols + j];
        }
      }
    }
    EXPECT_EQ(covered, std::vector<int>(rows * cols, 1));
  }
}

// What cuBLAS does with such arguments, from its documentation: all matrices column-major.
std::vector<float> ColumnMajor(const ColumnMajorGemm& g, const std::vector<float>& first,
                               const std::vector<float>& second) {
  std::vector<float> out(g.m * g.n);
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      for (int64_t d = 0; d < g.k; ++d) {
        const float a = g.first_transposed ? first[d + i * g.first_ld] : first[i + d * g.first_ld];
        out[i + j * g.out_ld] += a * second[d + j * g.second_ld];
      }
    }
  }
  return out;
}

TEST(CudaLayout, RowMajorProductsMapToColumnMajor) {
  const int64_t m = 3;
  const int64_t n = 4;
  const int64_t k = 5;
  std::vector<float> left(m * k);
  std::vector<float> right(k * n);
  std::vector<float> right_transposed(n * k);
  for (int64_t i = 0; i < m * k; ++i) {
    left[i] = static_cast<float>(i * i % 7 - 3);
  }
  for (int64_t d = 0; d < k; ++d) {
    for (int64_t j = 0; j < n; ++j) {
      right[d * n + j] = right_transposed[j * k + d] = static_cast<float>(d * 3 - j * j);
    }
  }
  std::vector<float> exact(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t d = 0; d < k; ++d) {
        exact[i * n + j] += left[i * k + d] * right[d * n + j];
      }
    }
  }
  EXPECT_EQ(ColumnMajor(MapRowMajor(m, n, k, false), right, left), exact);
  EXPECT_EQ(ColumnMajor(MapRowMajor(m, n, k, true), right_transposed, left), exact);
}

}  // namespace
}  // namespace dmuon::kernels::cuda
