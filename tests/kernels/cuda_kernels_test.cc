// The CUDA backend's own kernels, run on the host: their indices, their shared memory, their edges.
// Rounding and speed of a device are not seen here.
#include "tests/kernels/cuda_host_grid.h"
//
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/array_kernels.cuh"
#include "kernels/cuda/square_kernels.cuh"
#include "kernels/cuda/step_kernels.cuh"
#include "kernels/half_types.h"

namespace dmuon::kernels::testing {
namespace {

using cuda::ArrayPointer;
using cuda::Shape;

constexpr Index kTileThreads{cuda::kCopyTile, cuda::kCopyRows};
constexpr float kUntouched = -12345.0F;

std::vector<float> Numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = normal(random);
  }
  return numbers;
}

ArrayPointer PointerTo(std::vector<float>& data, int64_t stride, int64_t ld) {
  return {{data.data(), ElementType::kFloat32}, stride, ld};
}

Index TriangleGrid(int64_t side, unsigned matrices) {
  return {static_cast<unsigned>(cuda::TriangleTiles(cuda::CeilDivide(side, cuda::kCopyTile))),
          matrices};
}

TEST(CudaKernels, MirrorCopiesWhatIsBelowTheDiagonal) {
  for (const int64_t side : {8, 32, 40, 104}) {
    const int64_t ld = side;
    const int64_t stride = ld * side + 24;
    std::vector<float> squares = Numbers(2 * stride, 1);
    const std::vector<float> before = squares;
    const cuda::BitSquares<uint32_t> bits = cuda::BitsOf<uint32_t>(PointerTo(squares, stride, ld));
    RunOnHost(TriangleGrid(side, 2), kTileThreads, [&] { cuda::MirrorKernel(bits, side); });
    for (int64_t i = 0; i < 2 * stride; ++i) {
      const int64_t row = i % stride / ld;
      const int64_t col = i % stride % ld;
      const bool above = row < side && row < col;
      const int64_t from = above ? i - row * ld - col + col * ld + row : i;
      ASSERT_EQ(squares[i], before[from]) << "side " << side << " at " << row << ", " << col;
    }
  }
}

TEST(CudaKernels, CopyTriangleLeavesWhatIsAbove) {
  const int64_t side = 72;
  std::vector<float> from = Numbers(2 * side * side, 1);
  std::vector<float> to(from.size(), kUntouched);
  const auto source = cuda::BitsOf<uint32_t>(PointerTo(from, side * side, side));
  const auto target = cuda::BitsOf<uint32_t>(PointerTo(to, side * side, side));
  RunOnHost(TriangleGrid(side, 2), kTileThreads,
            [&] { cuda::CopyTriangleKernel(source, target, side); });
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % (side * side);
    ASSERT_EQ(to[i], at % side <= at / side ? from[i] : kUntouched);
  }
}

TEST(CudaKernels, AddIdentityOnEveryDiagonal) {
  const int64_t side = 24;
  std::vector<float> z = Numbers(3 * side * side, 1);
  std::vector<float> out(z.size(), kUntouched);
  RunOnHost({2, 3}, {cuda::kThreads, 1}, [&] {
    cuda::AddIdentityKernel(PointerTo(z, side * side, side), 2.5F, side,
                            PointerTo(out, side * side, side));
  });
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % (side * side);
    ASSERT_EQ(out[i], at / side == at % side ? z[i] + 2.5F : z[i]);
  }
}

// Two matrices, of which one has something that is not finite, through the halves of a step.
struct Step {
  explicit Step(const Shape& s) : shape(s) {
    for (int i = 0; i < 2; ++i) {
      gradients.push_back(Numbers(shape.count(), 10 + i));
      masters.push_back(Numbers(shape.count(), 20 + i));
      momenta.push_back(Numbers(shape.count(), 30 + i));
      new_masters.emplace_back(shape.count(), kUntouched);
      new_momenta.emplace_back(shape.count(), kUntouched);
    }
    for (int i = 0; i < 2; ++i) {
      matrices.push_back({gradients[i].data(), masters[i].data(), momenta[i].data(),
                          new_masters[i].data(), new_momenta[i].data()});
    }
    factors = {0.5F, 0.9F, 0.25F, 0.99F, 0.125F};
  }

  cuda::StepOfMatrices Arguments() { return {&factors, matrices.data(), flags, 2}; }

  Shape shape;
  MuonFactors factors;
  std::vector<std::vector<float>> gradients, masters, momenta, new_masters, new_momenta;
  std::vector<MuonMatrix> matrices;
  int flags[2] = {0, 0};
};

// More than one norm block, the last one short.
TEST(CudaKernels, MomentumWritesDirectionAndSums) {
  Step step({2, cuda::kNormBlock - 1000});
  step.gradients[1][5] = std::numeric_limits<float>::infinity();
  const int64_t count = step.shape.count();
  const int64_t blocks = cuda::NormBlocks(count);
  ASSERT_EQ(blocks, 2);
  const int64_t stride = count + 96;
  std::vector<float> u(2 * stride, kUntouched);
  std::vector<double> sums(2 * blocks);
  RunOnHost({static_cast<unsigned>(blocks), 2}, {cuda::kNormThreads, 1}, [&] {
    cuda::MomentumKernel(step.Arguments(), true, ElementType::kFloat32, count, u.data(), stride,
                         sums.data());
  });
  EXPECT_EQ(step.flags[0], 0);
  EXPECT_EQ(step.flags[1], 1);
  for (int matrix = 0; matrix < 2; ++matrix) {
    const float* direction = u.data() + matrix * stride;
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      const float g = 0.25F * (0.5F * step.gradients[matrix][i]);
      const float m = 0.9F * step.momenta[matrix][i] + g;
      ASSERT_EQ(step.new_momenta[matrix][i], m);
      ASSERT_EQ(direction[i], g + 0.9F * m);
      sum += static_cast<double>(direction[i]) * direction[i];
    }
    const double total = sums[2 * matrix] + sums[2 * matrix + 1];
    if (matrix == 0) {
      EXPECT_NEAR(total, sum, 1e-9 * sum);
    } else {
      EXPECT_EQ(total, std::numeric_limits<double>::infinity());
    }
  }
  EXPECT_EQ(u[count], kUntouched);
}

void ExpectNormalized(const Shape& shape, ElementType type) {
  const int64_t stride = shape.padded_m() * shape.padded_n();
  const std::vector<float> u = Numbers(2 * stride, 3);
  const NormalizeFactors normalizers[2] = {{1.0F, 4.0F}, {2.0F, 16.0F}};
  std::vector<float> x(2 * stride, kUntouched);
  const auto tiles = static_cast<unsigned>(cuda::CopyTiles(shape.padded_m(), shape.padded_n()));
  RunOnHost({tiles, 2}, kTileThreads, [&] {
    cuda::NormalizeKernel(shape, u.data(), stride, normalizers,
                          {{x.data(), type}, stride, shape.padded_n()});
  });
  for (int64_t i = 0; i < 2 * stride; ++i) {
    const int64_t row = i % stride / shape.padded_n();
    const int64_t col = i % stride % shape.padded_n();
    const int64_t r = shape.transposed() ? col : row;
    const int64_t c = shape.transposed() ? row : col;
    const float value = u[i / stride * stride + r * shape.cols + c] / (i < stride ? 4.0F : 8.0F);
    const float expected = r < shape.rows && c < shape.cols ? value : 0.0F;
    if (type == ElementType::kFloat32) {
      ASSERT_EQ(x[i], expected) << "at " << row << ", " << col;
    } else {
      ASSERT_EQ(reinterpret_cast<const uint16_t*>(x.data())[i], BFloat16FromFloat(expected));
    }
  }
}

TEST(CudaKernels, NormalizePadsAndTransposes) {
  for (const Shape& shape : {Shape{1, 1}, Shape{30, 70}, Shape{70, 30}, Shape{64, 64}}) {
    ExpectNormalized(shape, ElementType::kFloat32);
    ExpectNormalized(shape, ElementType::kBFloat16);
  }
}

TEST(CudaKernels, NormalizersComeFromSumsInOrder) {
  const int64_t blocks = 2 * cuda::kThreads + 3;
  std::vector<double> sums(2 * blocks, 0.25);
  sums[blocks + 1] = std::numeric_limits<double>::quiet_NaN();
  NormalizeFactors normalizers[2];
  int flags[2] = {0, 0};
  RunOnHost({2, 1}, {cuda::kThreads, 1}, [&] {
    cuda::NormalizersKernel(Normalize::kStrict, 0.0, sums.data(), blocks, normalizers, flags);
  });
  EXPECT_EQ(normalizers[0].divisor, static_cast<float>(std::sqrt(0.25 * blocks)));
  EXPECT_NE(normalizers[1].divisor, normalizers[1].divisor);
  EXPECT_EQ(flags[0], 0);
  EXPECT_EQ(flags[1], 1);
}

TEST(CudaKernels, UpdateReadsTheTransposeOfHighMatrices) {
  for (const Shape& shape : {Shape{1, 1}, Shape{30, 70}, Shape{70, 30}, Shape{33, 97}}) {
    Step step(shape);
    step.masters[1][0] = std::numeric_limits<float>::quiet_NaN();
    const int64_t ld = shape.padded_n();
    const int64_t stride = shape.padded_m() * ld;
    std::vector<float> o = Numbers(2 * stride, 3);
    const auto tiles = static_cast<unsigned>(cuda::CopyTiles(shape.rows, shape.cols));
    RunOnHost({tiles, 2}, kTileThreads,
              [&] { cuda::UpdateKernel(step.Arguments(), shape, PointerTo(o, stride, ld)); });
    for (int64_t i = 0; i < 2 * shape.count(); ++i) {
      const int64_t matrix = i / shape.count();
      const int64_t place = i % shape.count();
      const int64_t row = place / shape.cols;
      const int64_t col = place % shape.cols;
      const int64_t at = matrix * stride + (shape.transposed() ? col * ld + row : row * ld + col);
      const float result = step.new_masters[matrix][place];
      if (i == shape.count()) {
        ASSERT_TRUE(std::isnan(result));
      } else {
        ASSERT_EQ(result, 0.99F * step.masters[matrix][place] - 0.125F * o[at]);
      }
    }
    EXPECT_EQ(step.flags[0], 0);
    EXPECT_EQ(step.flags[1], 1);
  }
}

TEST(CudaKernels, SquaredSumIsThatOfItsBlocks) {
  const std::vector<float> data = Numbers(cuda::kNormBlock + 777, 4);
  const auto count = static_cast<int64_t>(data.size());
  double sums[2] = {0.0, 0.0};
  double total = 0.0;
  RunOnHost({2, 1}, {cuda::kNormThreads, 1},
            [&] { cuda::BlockSquaredSumKernel(data.data(), count, sums); });
  RunOnHost({1, 1}, {cuda::kThreads, 1}, [&] { cuda::SumInOrderKernel(sums, 2, &total); });
  double expected = 0.0;
  for (const float value : data) {
    expected += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(total, expected, 1e-9 * expected);
  EXPECT_EQ(total, sums[0] + sums[1]);
}

}  // namespace
}  // namespace dmuon::kernels::testing
