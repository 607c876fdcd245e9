// What only the CPU backend promises.
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/cpu/batch_newton_schulz.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/device.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

TEST(CpuDevice, DescribesItself) {
  EXPECT_NE(MakeCpuDevice({1})->Describe().find("cpu (1 thread, "), std::string::npos);
  EXPECT_NE(MakeCpuDevice({3})->Describe().find("cpu (3 threads, "), std::string::npos);
  const bool emulated = MakeCpuDevice({1})->Describe().find("bf16 emulated") != std::string::npos;
  EXPECT_EQ(emulated, !HasNativeBFloat16());
}

TEST(CpuDevice, AutoPrecisionIsWhatTheProcessorHas) {
  EXPECT_EQ(MakeCpuDevice({1})->AutoPrecision(),
            HasNativeBFloat16() ? ElementType::kBFloat16 : ElementType::kFloat32);
}

TEST(CpuDevice, ZeroThreadsMeansAllCores) {
  const std::string all = std::to_string(AvailableCores()) + " thread";
  EXPECT_NE(MakeCpuDevice({0})->Describe().find("cpu (" + all), std::string::npos);
  EXPECT_THROW(MakeCpuDevice({-1}), std::invalid_argument);
}

TEST(CpuDevice, RefusesFloat16WithAReason) {
  const auto device = MakeCpuDevice({1});
  std::string why;
  EXPECT_FALSE(device->Supports(ElementType::kFloat16, &why));
  EXPECT_NE(why.find("fp16"), std::string::npos);
  EXPECT_NE(why.find("bf16 or fp32"), std::string::npos);
  MuonOptions options;
  options.newton_schulz = PlainOptions(PolarExpress());
  options.newton_schulz.precision = ElementType::kFloat16;
  EXPECT_THROW(device->MuonStep(options, {}, 2, 2, {}, {}), std::invalid_argument);
}

// Results of 16 MB and more are stored in another way: the same bits, wherever they begin.
TEST(CpuDevice, LargeResultsAreThoseOfTheirPieces) {
  const auto device = MakeCpuDevice({2});
  constexpr int64_t kPiece = 1'000'003;
  constexpr int64_t kCount = 9 * kPiece;  // 18 MB of halves
  std::vector<float> values(kCount + 1);
  for (int64_t i = 0; i <= kCount; ++i) {
    values[i] = static_cast<float>(i * 7919 % 100'003) / 1024.0F;
  }
  const auto expect_same = [&](auto run, auto zero) {
    std::vector<decltype(zero)> whole(kCount + 1);
    std::vector<decltype(zero)> pieces(kCount + 1);
    run(0, kCount, whole.data() + 1);
    for (int64_t first = 0; first < kCount; first += kPiece) {
      run(first, kPiece, pieces.data() + 1 + first);
    }
    EXPECT_TRUE(whole == pieces);
  };
  const auto reduce = [&](int64_t first, int64_t count, float* to) {
    const ReduceSource sources[] = {
        {values.data() + first}, {nullptr}, {values.data() + first + 1}};
    device->Reduce(ElementType::kFloat32, sources, count, 0.3F, to);
  };
  const auto publish = [&](int64_t first, int64_t count, uint16_t* to) {
    device->Publish(ElementType::kBFloat16, values.data() + first, count, to);
  };
  const auto adamw = [&](int64_t first, int64_t count, float* to) {
    static std::vector<float> moments(2 * kCount);  // not looked at
    const float* from = values.data() + first;
    EXPECT_TRUE(device->AdamWStep(
        {}, {count, from, from, from, from, to, moments.data(), moments.data() + kCount}));
  };
  expect_same(reduce, 0.0F);
  expect_same(publish, uint16_t{0});
  expect_same(adamw, 0.0F);
}

TEST(Workspace, KeepsItsMemory) {
  Workspace workspace;
  workspace.Reset(1 << 16);
  auto* first = workspace.Take<float>(100);
  auto* second = workspace.Take<uint8_t>(1);
  EXPECT_EQ(reinterpret_cast<uint8_t*>(first) + 448, second);  // 400 bytes, rounded up to 64s
  EXPECT_THROW(workspace.TakeBytes(1 << 16), std::logic_error);
  workspace.Reset(1 << 15);
  EXPECT_EQ(workspace.Take<float>(100), first);
}

TEST(TiledProduct, TriangleTilesAreEachOnce) {
  for (int64_t side = 1; side < 20; ++side) {
    std::vector<int> seen(side * side);
    for (int64_t i = 0; i < TriangleCount(side); ++i) {
      const TileIndex tile = TriangleTile(i);
      ASSERT_LE(tile.col, tile.row);
      ASSERT_LT(tile.row, side);
      ++seen[tile.row * side + tile.col];
    }
    for (int64_t row = 0; row < side; ++row) {
      for (int64_t col = 0; col < side; ++col) {
        EXPECT_EQ(seen[row * side + col], col <= row ? 1 : 0);
      }
    }
  }
  static_assert(TilesAlong(1, 64) == 1 && TilesAlong(64, 64) == 1 && TilesAlong(65, 64) == 2);
}

TEST(BatchNewtonSchulz, RowsAreNotAPowerOfTwoApart) {
  static_assert(LeadingDimension(100) == 100 && LeadingDimension(192) == 192);
  static_assert(LeadingDimension(128) == 160 && LeadingDimension(4096) == 4128);
}

// A batch of two products left * left^T with an addend, and what they are by loops.
struct ProductCase {
  static constexpr int64_t kSide = kLargestTile + 7;
  static constexpr int64_t kDepth = 83;
  static constexpr int64_t kCount = 2;
  static constexpr int64_t kSquare = kSide * kSide;

  std::vector<float> left = ToFloats(MakeInput(InputClass::kGaussian, kCount* kSide, kDepth, 1));
  std::vector<float> right = std::vector<float>(kCount * kDepth * kSide);  // left, transposed
  std::vector<float> addend = ToFloats(MakeInput(InputClass::kGaussian, kCount* kSide, kSide, 2));
  std::vector<double> exact = std::vector<double>(kCount * kSquare);

  ProductCase() {
    for (int64_t matrix = 0; matrix < kCount; ++matrix) {
      for (int64_t i = 0; i < kSide; ++i) {
        FillRow(matrix, i);
      }
    }
  }

  void FillRow(int64_t matrix, int64_t i) {
    const float* rows = left.data() + matrix * kSide * kDepth;
    for (int64_t d = 0; d < kDepth; ++d) {
      right[matrix * kDepth * kSide + d * kSide + i] = rows[i * kDepth + d];
    }
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t here = matrix * kSquare + i * kSide + j;
      const int64_t mirrored = matrix * kSquare + j * kSide + i;
      addend[mirrored] = addend[here];  // symmetric, as the contract asks
      exact[here] = -2.0 * addend[here];
      for (int64_t d = 0; d < kDepth; ++d) {
        exact[here] += 0.5 * rows[i * kDepth + d] * rows[j * kDepth + d];
      }
      exact[mirrored] = exact[here];
    }
  }

  TiledProduct Product(bool symmetric, bool right_transposed) {
    TiledProduct product;
    product.rows = product.cols = kSide;
    product.depth = kDepth;
    product.left = product.right = {left.data(), ElementType::kFloat32, kDepth, kSide * kDepth};
    product.right_transposed = right_transposed;
    if (!right_transposed) {
      product.right = {right.data(), ElementType::kFloat32, kSide, kDepth * kSide};
    }
    product.symmetric = symmetric;
    product.product_factor = 0.5F;
    product.addend = {addend.data(), ElementType::kFloat32, kSide, kSquare};
    product.addend_factor = -2.0F;
    return product;
  }
};

// Symmetric and general products with all options, against loops.
TEST(TiledProduct, AgreesWithLoops) {
  ThreadPool pool(2);
  TileRunner runner(pool, false);
  ProductCase given;
  for (const bool symmetric : {false, true}) {
    for (const bool right_transposed : {false, true}) {
      constexpr int64_t kSide = ProductCase::kSide;
      std::vector<float> out(given.exact.size());
      std::vector<float> transposed(given.exact.size());
      TiledProduct product = given.Product(symmetric, right_transposed);
      product.out = {out.data(), ElementType::kFloat32, kSide, ProductCase::kSquare};
      if (!symmetric) {
        product.transposed_out = {transposed.data(), ElementType::kFloat32, kSide,
                                  ProductCase::kSquare};
      }
      runner.Run(product, ProductCase::kCount);
      for (int64_t i = 0; i < std::ssize(out); ++i) {
        const int64_t inside = i % ProductCase::kSquare;
        const int64_t mirrored = i - inside + inside % kSide * kSide + inside / kSide;
        ASSERT_NEAR(out[i], given.exact[i], 4e-5);
        ASSERT_EQ(out[i], symmetric ? out[mirrored] : transposed[mirrored]);
      }
    }
  }
}

// A product without addend goes straight to its place.
TEST(TiledProduct, PlainProductsAgreeWithTheOthers) {
  ThreadPool pool(1);
  TileRunner runner(pool, false);
  ProductCase given;
  std::vector<float> plain(given.exact.size());
  std::vector<float> added(given.exact.size());
  TiledProduct product = given.Product(false, false);
  product.product_factor = 1.0F;
  product.addend_factor = 0.0F;
  product.out = {added.data(), ElementType::kFloat32, ProductCase::kSide, ProductCase::kSquare};
  runner.Run(product, ProductCase::kCount);
  product.addend = {};
  product.out.data = plain.data();
  runner.Run(product, ProductCase::kCount);
  EXPECT_EQ(plain, added);
}

}  // namespace
}  // namespace dmuon::kernels::testing
