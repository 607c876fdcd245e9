// The CUDA backend's index arithmetic, which needs no GPU.
#include <gtest/gtest.h>

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

// X of a rows x cols matrix g is g, or its transpose where g is higher than wide.
TEST(CudaLayout, XIsTheMatrixOrItsTranspose) {
  for (const Shape& shape : {Shape{3, 5}, Shape{5, 3}, Shape{4, 4}, Shape{1, 7}, Shape{7, 1}}) {
    EXPECT_LE(shape.m(), shape.n());
    EXPECT_EQ(shape.m() * shape.n(), shape.count());
    for (int64_t i = 0; i < shape.m(); ++i) {
      for (int64_t j = 0; j < shape.n(); ++j) {
        const int64_t in_x = i * shape.n() + j;
        const int64_t in_matrix = shape.rows > shape.cols ? j * shape.cols + i : i * shape.cols + j;
        EXPECT_EQ(shape.MatrixIndex(in_x), in_matrix);
        EXPECT_EQ(shape.XIndex(in_matrix), in_x);
      }
    }
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
