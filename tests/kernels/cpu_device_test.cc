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

// Never a crash: one line that names the device and the reason.
TEST(CudaDevice, SaysWhyThereIsNone) {
  try {
    MakeCudaDevice(9999);
    FAIL() << "made a device that cannot exist";
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("cuda:9999: ", 0), 0U) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
#if defined(DMUON_TEST_HAVE_CUDA)
    EXPECT_NE(what.find("no CUDA device"), std::string::npos) << what;
#else
    EXPECT_NE(what.find("no CUDA backend"), std::string::npos) << what;
    EXPECT_NE(what.find("DMUON_CUDA=ON"), std::string::npos) << what;
#endif
  }
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

// Symmetric and general products with all options, against loops.
TEST(TiledProduct, AgreesWithLoops) {
  ThreadPool pool(2);
  TileRunner runner(pool, false);
  const int64_t m = kLargestTile + 7;
  const int64_t k = 19;
  const int64_t count = 2;
  const Matrix a = MakeInput(InputClass::kGaussian, count * m, k, 1);
  const Matrix addend = MakeInput(InputClass::kGaussian, count * m, m, 2);
  std::vector<float> left = ToFloats(a);
  std::vector<float> added = ToFloats(addend);
  for (int64_t i = 0; i < m; ++i) {  // symmetric, as the contract asks
    for (int64_t j = 0; j < i; ++j) {
      added[j * m + i] = added[i * m + j];
      added[m * m + j * m + i] = added[m * m + i * m + j];
    }
  }
  for (const bool symmetric : {false, true}) {
    std::vector<float> out(count * m * m);
    TiledProduct product;
    product.rows = product.cols = m;
    product.depth = k;
    product.left = product.right = {left.data(), ElementType::kFloat32, k, m * k};
    product.right_transposed = true;
    product.symmetric = symmetric;
    product.product_factor = 0.5F;
    product.addend = {added.data(), ElementType::kFloat32, m, m * m};
    product.addend_factor = -2.0F;
    product.out = {out.data(), ElementType::kFloat32, m, m * m};
    runner.Run(product, count);
    for (int64_t matrix = 0; matrix < count; ++matrix) {
      const float* rows = left.data() + matrix * m * k;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < m; ++j) {
          double exact = -2.0 * added[matrix * m * m + i * m + j];
          for (int64_t d = 0; d < k; ++d) {
            exact += 0.5 * rows[i * k + d] * rows[j * k + d];
          }
          ASSERT_NEAR(out[matrix * m * m + i * m + j], exact, 2e-5);
          if (symmetric) {
            ASSERT_EQ(out[matrix * m * m + i * m + j], out[matrix * m * m + j * m + i]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing
