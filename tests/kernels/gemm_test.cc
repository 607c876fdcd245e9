#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels::testing {
namespace {

struct Operand {
  GemmOperand view;
  std::vector<float> values;  // as stored, exact
  std::vector<uint8_t> bytes;
};

// Small integers, which every type holds exactly; rows are padded.
Operand MakeOperand(ElementType type, int64_t rows, int64_t cols, bool transposed, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t stored_rows = transposed ? cols : rows;
  const int64_t ld = (transposed ? rows : cols) + 3;
  Operand operand;
  operand.values.resize(stored_rows * ld);
  for (float& value : operand.values) {
    value = static_cast<float>(static_cast<int>(random() % 17) - 8);
  }
  operand.bytes.resize(operand.values.size() * SizeOf(type));
  StoreRow(type, operand.values.data(), std::ssize(operand.values), operand.bytes.data(), 0);
  operand.view = {operand.bytes.data(), type, ld, transposed};
  return operand;
}

double At(const Operand& operand, int64_t row, int64_t col) {
  return operand.view.transposed ? operand.values[col * operand.view.ld + row]
                                 : operand.values[row * operand.view.ld + col];
}

struct Shape {
  int64_t m;
  int64_t n;
  int64_t k;
};
// Depths around the conversion piece, sides and depths around the micro-kernels'.
constexpr Shape kShapes[] = {{1, 1, 1},     {5, 7, 3},     {256, 256, 64}, {3, 200, 1024},
                             {17, 2, 2500}, {70, 45, 100}, {33, 31, 127}};

// Sums of small integers are exact in fp32, so the comparison can be too.
template <typename Product>
void ExpectExact(ElementType left_type, ElementType right_type, Product product) {
  for (const Shape& shape : kShapes) {
    for (const bool left_transposed : {false, true}) {
      for (const bool right_transposed : {false, true}) {
        const Operand left = MakeOperand(left_type, shape.m, shape.k, left_transposed, 1);
        const Operand right = MakeOperand(right_type, shape.k, shape.n, right_transposed, 2);
        const int64_t ldc = shape.n + 5;
        std::vector<float> c(shape.m * ldc, -77.0F);
        product(shape, left.view, right.view, c.data(), ldc);
        for (int64_t i = 0; i < shape.m; ++i) {
          for (int64_t j = 0; j < ldc; ++j) {
            double exact = j < shape.n ? 0.0 : -77.0;
            for (int64_t d = 0; j < shape.n && d < shape.k; ++d) {
              exact += At(left, i, d) * At(right, d, j);
            }
            ASSERT_EQ(c[i * ldc + j], exact)
                << i << "," << j << " of " << shape.m << "x" << shape.n << "x" << shape.k;
          }
        }
      }
    }
  }
}

TEST(Gemm, IsExactOnSmallIntegersOfEveryType) {
  Gemm gemm(NativeBFloat16Works());
  const ElementType types[] = {ElementType::kFloat32, ElementType::kBFloat16,
                               ElementType::kFloat16};
  for (const ElementType left : types) {
    for (const ElementType right : types) {
      ExpectExact(left, right,
                  [&](const Shape& s, const GemmOperand& a, const GemmOperand& b, float* c,
                      int64_t ldc) { gemm.Run(s.m, s.n, s.k, a, b, c, ldc); });
    }
  }
}

// The primitive that native bf16 uses; fp32 exercises the same strides and caching everywhere.
TEST(MatmulPrimitives, AreExactOnSmallIntegers) {
  MatmulPrimitives primitives;
  const auto run = [&](const Shape& s, const GemmOperand& a, const GemmOperand& b, float* c,
                       int64_t ldc) { primitives.Run(s.m, s.n, s.k, a, b, c, ldc); };
  ExpectExact(ElementType::kFloat32, ElementType::kFloat32, run);
  ExpectExact(ElementType::kFloat32, ElementType::kFloat32, run);  // from the cache
}

TEST(MatmulPrimitives, AreExactInNativeBFloat16) {
  if (!NativeBFloat16Works()) {
    GTEST_SKIP() << "this processor has no bf16 products";
  }
  MatmulPrimitives primitives;
  ExpectExact(ElementType::kBFloat16, ElementType::kBFloat16,
              [&](const Shape& s, const GemmOperand& a, const GemmOperand& b, float* c,
                  int64_t ldc) { primitives.Run(s.m, s.n, s.k, a, b, c, ldc); });
}

TEST(MatmulPrimitives, SayWhichCallFailed) {
  MatmulPrimitives primitives;
  const float value = 1.0F;
  float result = 0.0F;
  const GemmOperand bad{&value, ElementType::kFloat32, 0, false};  // rows cannot overlap
  try {
    primitives.Run(4, 4, 4, bad, bad, &result, 1);
    FAIL() << "an impossible layout was accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("oneDNN"), std::string::npos);
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing
