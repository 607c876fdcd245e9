// Blocks, their kernel, and products of matrices in panels, against plain loops.
#include "kernels/cpu/panel_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/cpu/block_kernel.h"
#include "kernels/cpu/block_operations.h"
#include "kernels/half_types.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {
namespace {

std::vector<float> GaussianFloats(int64_t rows, int64_t cols, uint32_t seed) {
  return ToFloats(MakeInput(InputClass::kGaussian, rows, cols, seed));
}

// ---- blocks

class BlockKernelTest : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(BlockKernelTest, AgreesWithLoops) {
  const auto [left_stride, count] = GetParam();
  const std::vector<float> left =
      GaussianFloats((count - 1) * left_stride / kBlockSide + kBlockSide, kBlockSide, 1);
  const std::vector<float> right = GaussianFloats(count * kBlockSide, kBlockSide, 2);
  const std::vector<float> before = GaussianFloats(kBlockSide, kBlockSide, 3);
  for (const bool add : {false, true}) {
    std::vector<float> c = before;
    BlockKernel(left_stride).Run(left.data(), right.data(), count, add, c.data());
    for (int64_t i = 0; i < kBlockSide; ++i) {
      for (int64_t j = 0; j < kBlockSide; ++j) {
        double exact = add ? before[i * kBlockSide + j] : 0.0;
        for (int64_t b = 0; b < count; ++b) {
          for (int64_t k = 0; k < kBlockSide; ++k) {
            exact += double{left[b * left_stride + i * kBlockSide + k]} *
                     double{right[b * kBlockElements + k * kBlockSide + j]};
          }
        }
        ASSERT_NEAR(c[i * kBlockSide + j], exact, 1e-4) << i << ", " << j << ", add " << add;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strides, BlockKernelTest,
                         ::testing::Combine(::testing::Values(kBlockElements, 3 * kBlockElements),
                                            ::testing::Values(1, 2, 5)));
// No generated kernel takes blocks so far apart: the portable one runs.
INSTANTIATE_TEST_SUITE_P(Portable, BlockKernelTest,
                         ::testing::Combine(::testing::Values(int64_t{1} << 40),
                                            ::testing::Values(1)));

TEST(BlockOperations, TransposeMovesEveryElement) {
  const std::vector<float> from = GaussianFloats(kBlockSide, kBlockSide, 4);
  std::vector<float> to(kBlockElements);
  TransposeBlock(from.data(), to.data());
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      ASSERT_EQ(to[j * kBlockSide + i], from[i * kBlockSide + j]);
    }
  }
}

TEST(BlockOperations, MirrorTakesTheLowerHalf) {
  const std::vector<float> from = GaussianFloats(kBlockSide, kBlockSide, 5);
  std::vector<float> block = from;
  MirrorBlock(block.data());
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      ASSERT_EQ(block[i * kBlockSide + j], from[i * kBlockSide + j]);
      ASSERT_EQ(block[j * kBlockSide + i], from[i * kBlockSide + j]);
    }
  }
}

// ---- tiles

TEST(BlockTileAt, CoversEachBlockOnce) {
  for (const bool symmetric : {false, true}) {
    for (int64_t rows = 1; rows < 20; ++rows) {
      for (const int64_t side : {1, 2, 4, 8}) {
        PanelProduct product;
        product.symmetric = symmetric;
        product.out.block_rows = rows;
        product.out.block_cols = symmetric ? rows : rows + 3;
        std::vector<int> seen(product.out.block_rows * product.out.block_cols);
        for (int64_t index = 0; index < CountTiles(product, side); ++index) {
          const BlockTile tile = BlockTileAt(product, side, index);
          ASSERT_TRUE(tile.rows > 0 && tile.rows <= side && tile.cols > 0 && tile.cols <= side);
          for (int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
            for (int64_t j = tile.col; j < tile.col + tile.cols; ++j) {
              ++seen[i * product.out.block_cols + j];
            }
          }
        }
        for (int64_t i = 0; i < product.out.block_rows; ++i) {
          for (int64_t j = 0; j < product.out.block_cols; ++j) {
            const int count = seen[i * product.out.block_cols + j];
            if (!symmetric || i >= j) {
              ASSERT_EQ(count, 1) << rows << " blocks, side " << side;
            } else {
              ASSERT_LE(count, 1);  // above the diagonal: the rest of a tile that reaches below
            }
          }
        }
      }
    }
  }
}

// ---- products

// Matrices of rows x cols in panels, with the memory that they lie in.
struct Panels {
  int64_t rows;
  int64_t cols;
  int64_t count;
  PanelMatrix matrix;
  std::vector<float> memory;

  Panels(int64_t given_rows, int64_t given_cols, int64_t given_count, uint32_t seed = 0)
      : rows(given_rows),
        cols(given_cols),
        count(given_count),
        matrix(PanelShape(rows, cols)),
        memory(count * matrix.stride()) {
    matrix.data = memory.data();
    const std::vector<float> values = seed != 0 ? GaussianFloats(count * rows, cols, seed)
                                                : std::vector<float>(count * rows * cols);
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      At(i / cols / rows, i / cols % rows, i % cols) = values[i];
    }
  }

  float& At(int64_t index, int64_t i, int64_t j) {
    float* block = matrix.Block(index, i / kBlockSide, j / kBlockSide);
    return block[i % kBlockSide * kBlockSide + j % kBlockSide];
  }
};

// left * right + 0.5 * addend, or, symmetric, left * left^T + 0.5 * (addend + addend^T).
struct PanelProductCase {
  static constexpr int64_t kRows = 5 * kBlockSide + 7;
  static constexpr int64_t kDepth = 9 * kBlockSide + 3;  // more than one piece
  static constexpr int64_t kCount = 2;

  bool symmetric;
  int64_t cols = symmetric ? kRows : 3 * kBlockSide + 1;
  Panels left{kRows, kDepth, kCount, 1};
  Panels right{kDepth, cols, kCount, 2};
  Panels addend{kRows, cols, kCount, 3};
  Panels out{kRows, cols, kCount};
  Panels transposed{cols, kRows, kCount};

  explicit PanelProductCase(bool given) : symmetric(given) {
    for (int64_t index = 0; symmetric && index < kCount; ++index) {
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t k = 0; k < kDepth; ++k) {
          right.At(index, k, i) = left.At(index, i, k);
        }
        for (int64_t j = 0; j < i; ++j) {
          addend.At(index, i, j) = addend.At(index, j, i);
        }
      }
    }
  }

  PanelProduct Product() const {
    PanelProduct product;
    product.left = left.matrix;
    product.right = right.matrix;
    product.symmetric = symmetric;
    product.product_factor = 2.0F;
    product.addend = addend.matrix;
    product.addend_factor = 0.5F;
    product.out = out.matrix;
    if (!symmetric) product.transposed_out = transposed.matrix;
    return product;
  }

  double Exact(int64_t index, int64_t i, int64_t j) {
    double sum = 0.0;
    for (int64_t k = 0; k < kDepth; ++k) {
      sum += double{left.At(index, i, k)} * double{right.At(index, k, j)};
    }
    return 2.0 * sum + 0.5 * double{addend.At(index, i, j)};
  }
};

class PanelProductTest : public ::testing::TestWithParam<bool> {};

TEST_P(PanelProductTest, AgreesWithLoops) {
  PanelProductCase given(GetParam());
  ThreadPool pool(2);
  PanelRunner(pool).Run(given.Product(), PanelProductCase::kCount);
  for (int64_t index = 0; index < PanelProductCase::kCount; ++index) {
    for (int64_t i = 0; i < PanelProductCase::kRows; ++i) {
      for (int64_t j = 0; j < given.cols; ++j) {
        const float value = given.out.At(index, i, j);
        ASSERT_NEAR(value, given.Exact(index, i, j), 1e-3) << index << ": " << i << ", " << j;
        Panels& transposed = GetParam() ? given.out : given.transposed;
        ASSERT_EQ(value, transposed.At(index, j, i)) << index << ": " << i << ", " << j;
      }
    }
  }
  // What is beyond the matrix stays zero.
  const PanelMatrix& out = given.out.matrix;
  const float* last = out.Block(0, out.block_rows - 1, out.block_cols - 1);
  EXPECT_EQ(last[kBlockElements - 1], 0.0F);
}

TEST_P(PanelProductTest, TilesAndThreadsDoNotChangeBits) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    for (const int64_t side : {0, 1, 2, 4, 8}) {
      PanelProductCase given(GetParam());
      ThreadPool pool(threads);
      PanelRunner runner(pool);
      runner.UseTiles({side, side});
      runner.Run(given.Product(), PanelProductCase::kCount);
      results.push_back(given.out.memory);
      EXPECT_EQ(results.back(), results.front()) << side << " blocks, " << threads << " threads";
    }
  }
}

TEST_P(PanelProductTest, WithoutAddendOrFactorTheSumsAreTheResult) {
  PanelProductCase given(GetParam());
  ThreadPool pool(1);
  PanelRunner runner(pool);
  PanelProduct product = given.Product();
  product.addend = {};
  runner.Run(product, PanelProductCase::kCount);
  const std::vector<float> doubled = given.out.memory;
  product.product_factor = 1.0F;
  runner.Run(product, PanelProductCase::kCount);
  for (std::size_t i = 0; i < doubled.size(); ++i) {
    ASSERT_EQ(doubled[i], 2.0F * given.out.memory[i]);
  }
}

TEST_P(PanelProductTest, RoundsOnceToTheStorage) {
  PanelProductCase given(GetParam());
  ThreadPool pool(1);
  PanelRunner runner(pool);
  PanelProduct product = given.Product();
  runner.Run(product, PanelProductCase::kCount);
  const std::vector<float> exact = given.out.memory;
  product.rounding = ElementType::kBFloat16;
  runner.Run(product, PanelProductCase::kCount);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(given.out.memory[i], RoundToBFloat16(exact[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PanelProductTest, ::testing::Bool());

}  // namespace
}  // namespace dmuon::kernels::testing
