// The calls that the CUDA backend makes for an iteration, executed on the host with the arrays that
// cuBLAS would get: what its documentation says they mean, in fp64, on memory that starts as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/plan.h"
#include "kernels/half_types.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {
namespace {

using cuda::Array;
using cuda::GroupArrays;
using cuda::NewtonSchulzPlan;
using cuda::Shape;
using cuda::TriangleProduct;
using cuda::WholeProduct;

constexpr int64_t kAlignment = 16;  // bytes that every pointer given to cuBLAS must have

double Load(const char* at, ElementType type) {
  if (type == ElementType::kFloat32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return type == ElementType::kBFloat16 ? FloatFromBFloat16(bits) : FloatFromFloat16(bits);
}

void Store(char* at, ElementType type, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == ElementType::kFloat32) {
    std::memcpy(at, &rounded, sizeof(rounded));
    return;
  }
  const uint16_t bits =
      type == ElementType::kBFloat16 ? BFloat16FromFloat(rounded) : Float16FromFloat(rounded);
  std::memcpy(at, &bits, sizeof(bits));
}

// One column-major GEMM as the BLAS defines it; leading dimensions in elements.
struct HostGemm {
  bool first_transposed = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float factor = 1.0F;
  const char* first = nullptr;
  int64_t first_ld = 0;
  const char* second = nullptr;
  int64_t second_ld = 0;
  float out_factor = 0.0F;
  char* out = nullptr;
  int64_t out_ld = 0;
  ElementType type = ElementType::kFloat32;
  ElementType out_type = ElementType::kFloat32;
};

class HostExecutor {
 public:
  explicit HostExecutor(const NewtonSchulzPlan& plan)
      : plan_(plan), memory_(plan.bytes + cuda::kPieceAlignment, static_cast<char>(0xFF)) {
    const auto misplaced = reinterpret_cast<std::uintptr_t>(memory_.data()) % cuda::kPieceAlignment;
    base_ = memory_.data() + (cuda::kPieceAlignment - misplaced);
  }

  char* At(const Array& array, int64_t matrix, int64_t row, int64_t col) {
    const int64_t element = matrix * array.stride + row * array.ld + col;
    return Checked(array.offset + element * SizeOf(array.type), SizeOf(array.type));
  }

  void Run() {
    for (const cuda::Operation& operation : plan_.operations) {
      std::visit([&](const auto& call) { Execute(call); }, operation);
    }
  }

  int64_t flops() const { return flops_; }

 private:
  char* Checked(int64_t offset, int64_t bytes) {
    if (offset < 0 || offset + bytes > plan_.bytes) {
      throw std::out_of_range("outside the workspace: " + std::to_string(offset));
    }
    return base_ + offset;
  }

  void Gemm(const HostGemm& g) {
    for (const char* pointer : {g.first, g.second, static_cast<const char*>(g.out)}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % kAlignment, 0U);
    }
    // What cuBLAS refuses, and what would keep it from its tensor cores.
    EXPECT_GE(g.first_ld, g.first_transposed ? g.k : g.m);
    EXPECT_GE(g.second_ld, g.k);
    EXPECT_GE(g.out_ld, g.m);
    for (const int64_t ld : {g.first_ld, g.second_ld}) {
      EXPECT_EQ(ld * SizeOf(g.type) % kAlignment, 0);
    }
    EXPECT_EQ(g.out_ld * SizeOf(g.out_type) % kAlignment, 0);
    const auto element = [&](const char* data, int64_t i) {
      return Load(data + i * SizeOf(g.type), g.type);
    };
    for (int64_t j = 0; j < g.n; ++j) {
      for (int64_t i = 0; i < g.m; ++i) {
        double sum = 0.0;
        for (int64_t d = 0; d < g.k; ++d) {
          const int64_t at = g.first_transposed ? d + i * g.first_ld : i + d * g.first_ld;
          sum += element(g.first, at) * element(g.second, d + j * g.second_ld);
        }
        char* out = g.out + (i + j * g.out_ld) * SizeOf(g.out_type);
        Checked(out - base_, SizeOf(g.out_type));
        // As the BLAS: a factor of zero does not read.
        const double before = g.out_factor == 0.0F ? 0.0 : g.out_factor * Load(out, g.out_type);
        Store(out, g.out_type, g.factor * sum + before);
      }
    }
    flops_ += 2 * g.m * g.n * g.k;
  }

  void Execute(const WholeProduct& product) {
    for (int64_t i = 0; i < plan_.matrices; ++i) {
      const cuda::ColumnMajorGemm& g = product.gemm;
      Gemm({g.first_transposed, g.m, g.n, g.k, product.factor, At(product.first, i, 0, 0),
            g.first_ld, At(product.second, i, 0, 0), g.second_ld, product.out_factor,
            At(product.out, i, 0, 0), g.out_ld, product.first.type, product.out.type});
    }
  }

  // cublasGemmGroupedBatchedEx: first operands transposed, second ones not.
  void Execute(const TriangleProduct& product) {
    const GroupArrays arrays = cuda::GroupArraysOf(product);
    std::set<const char*> results;
    std::size_t problem = 0;
    for (std::size_t group = 0; group < arrays.sizes.size(); ++group) {
      for (int i = 0; i < arrays.sizes[group]; ++i, ++problem) {
        char* out = Checked(product.out.at(problem), 1);
        EXPECT_TRUE(results.insert(out).second) << "two problems write the same tile";
        Gemm({true, arrays.m[group], arrays.n[group], arrays.k[group], arrays.factors[group],
              Checked(product.first.at(problem), 1), arrays.first_ld[group],
              Checked(product.second.at(problem), 1), arrays.second_ld[group],
              arrays.out_factors[group], out, arrays.out_ld[group], product.left.type,
              product.result.type});
      }
    }
    EXPECT_EQ(problem, product.out.size());
    EXPECT_EQ(product.left.type, product.right.type);
  }

  void Execute(const cuda::Mirror& mirror) {
    ForEach(mirror.side, [&](int64_t matrix, int64_t row, int64_t col) {
      if (row < col) {
        std::memcpy(At(mirror.array, matrix, row, col), At(mirror.array, matrix, col, row),
                    SizeOf(mirror.array.type));
      }
    });
  }

  void Execute(const cuda::CopyTriangle& copy) {
    EXPECT_EQ(copy.from.type, copy.to.type);
    ForEach(copy.side, [&](int64_t matrix, int64_t row, int64_t col) {
      if (col <= row) {
        std::memcpy(At(copy.to, matrix, row, col), At(copy.from, matrix, row, col),
                    SizeOf(copy.to.type));
      }
    });
  }

  void Execute(const cuda::Convert& convert) {
    for (int64_t i = 0; i < convert.count; ++i) {
      Store(At(convert.to, 0, 0, i), convert.to.type,
            Load(At(convert.from, 0, 0, i), convert.from.type));
    }
  }

  void Execute(const cuda::AddIdentity& sum) {
    ForEach(sum.side, [&](int64_t matrix, int64_t row, int64_t col) {
      const double value = Load(At(sum.z, matrix, row, col), sum.z.type);
      Store(At(sum.out, matrix, row, col), sum.out.type, row == col ? value + sum.a : value);
    });
  }

  template <typename Visit>
  void ForEach(int64_t side, const Visit& visit) {
    for (int64_t matrix = 0; matrix < plan_.matrices; ++matrix) {
      for (int64_t row = 0; row < side; ++row) {
        for (int64_t col = 0; col < side; ++col) {
          visit(matrix, row, col);
        }
      }
    }
  }

  const NewtonSchulzPlan& plan_;
  std::vector<char> memory_;
  char* base_ = nullptr;
  int64_t flops_ = 0;
};

struct Numerics {
  Form form = Form::kDirect;
  ElementType precision = ElementType::kFloat32;
};

NewtonSchulzOptions OptionsOf(const Numerics& numerics) {
  NewtonSchulzOptions options;
  options.coefficients = PolarExpress();
  options.form = numerics.form;
  options.precision = numerics.precision;
  if (numerics.form == Form::kGram) {
    options.restart = {1, 3};
  }
  return options;
}

// Wide inputs of the plan's shape, normalised and cast, through the plan.
std::vector<Matrix> RunPlan(const NewtonSchulzPlan& plan, const Shape& shape,
                            const std::vector<Matrix>& inputs, int64_t* flops) {
  HostExecutor executor(plan);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (int64_t row = 0; row < shape.padded_m(); ++row) {
      for (int64_t col = 0; col < shape.padded_n(); ++col) {
        const bool inside = row < shape.m() && col < shape.n();
        Store(executor.At(plan.x, static_cast<int64_t>(i), row, col), plan.x.type,
              inside ? inputs[i].at(row, col) : 0.0);
      }
    }
  }
  executor.Run();
  std::vector<Matrix> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Matrix& result = results.emplace_back(shape.m(), shape.n());
    for (int64_t row = 0; row < shape.m(); ++row) {
      for (int64_t col = 0; col < shape.n(); ++col) {
        result.at(row, col) =
            Load(executor.At(plan.result, static_cast<int64_t>(i), row, col), plan.result.type);
      }
    }
  }
  *flops = executor.flops();
  return results;
}

double LimitOf(const Numerics& numerics) {
  if (numerics.precision == ElementType::kFloat32) {
    return numerics.form == Form::kGram ? 3e-4 : 5e-5;
  }
  return numerics.precision == ElementType::kFloat16 ? 1e-2 : 3e-2;  // of Gaussian inputs
}

int64_t ExpectPolynomial(const Numerics& numerics, const Shape& shape, int64_t matrices,
                         int64_t tile_side) {
  SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.cols) + " x " +
               std::to_string(matrices) + ", tiles of " + std::to_string(tile_side) + ", " +
               std::string(NameOf(numerics.form)) + " " + std::string(NameOf(numerics.precision)));
  const NewtonSchulzOptions options = OptionsOf(numerics);
  const NewtonSchulzPlan plan = cuda::MakePlan(options, shape, matrices, tile_side);
  EXPECT_EQ(plan.result.type, ElementType::kFloat32);
  std::vector<Matrix> inputs;
  for (int64_t i = 0; i < matrices; ++i) {
    inputs.push_back(CastInput(MakeInput(InputClass::kGaussian, shape.m(), shape.n(), i + 1),
                               options.normalize, options.eps, numerics.precision));
  }
  int64_t flops = 0;
  const std::vector<Matrix> results = RunPlan(plan, shape, inputs, &flops);
  for (int64_t i = 0; i < matrices; ++i) {
    EXPECT_LE(RelativeError(results[i], Polynomial(inputs[i], options.coefficients)),
              LimitOf(numerics))
        << "matrix " << i;
  }
  return flops;
}

TEST(CudaPlan, ComputesThePolynomialInEveryFormAndPrecision) {
  for (const Form form : {Form::kDirect, Form::kGram}) {
    for (const ElementType precision :
         {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
      for (const int64_t tile_side : {0, 16}) {
        ExpectPolynomial({form, precision}, {41, 70}, 2, tile_side);
      }
    }
  }
}

// Shapes below, at and beside the padding's unit and the tile; high ones have their transpose as X.
TEST(CudaPlan, ComputesThePolynomialOfEveryShape) {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 9}, Shape{7, 3}, Shape{16, 16}, Shape{17, 33},
                             Shape{64, 32}, Shape{48, 50}}) {
    for (const int64_t matrices : {1, 3}) {
      ExpectPolynomial({Form::kDirect, ElementType::kFloat32}, shape, matrices, 16);
      ExpectPolynomial({Form::kGram, ElementType::kFloat32}, shape, matrices, 32);
    }
  }
}

// 3 products of 128 x 128 x 128 per iteration, whole; by tiles of 16, two of them 36/64 of that.
TEST(CudaPlan, TilesOfATriangleSaveArithmetic) {
  const Numerics numerics{Form::kDirect, ElementType::kFloat32};
  const int64_t whole = ExpectPolynomial(numerics, {128, 128}, 1, 0);
  const int64_t tiles = ExpectPolynomial(numerics, {128, 128}, 1, 16);
  EXPECT_EQ(whole, int64_t{5} * 3 * 2 * 128 * 128 * 128);
  EXPECT_EQ(tiles * 64, whole / 3 * (64 + 2 * 36));
}

// A matrix's calls differ by nothing but where it lies.
TEST(CudaPlan, MatricesOfABatchLieStridesApart) {
  const NewtonSchulzOptions options = OptionsOf({Form::kGram, ElementType::kFloat16});
  const NewtonSchulzPlan plan = cuda::MakePlan(options, {100, 200}, 4, 32);
  for (const cuda::Operation& operation : plan.operations) {
    const auto* product = std::get_if<TriangleProduct>(&operation);
    if (product == nullptr) {
      continue;
    }
    std::size_t begin = 0;
    for (const cuda::TileGroup& group : product->groups) {
      const std::size_t each = group.tiles / 4;
      for (std::size_t i = begin; i < begin + 3 * each; ++i) {
        const auto bytes = [](const Array& array) { return array.stride * SizeOf(array.type); };
        EXPECT_EQ(product->first[i + each] - product->first[i], bytes(product->right));
        EXPECT_EQ(product->second[i + each] - product->second[i], bytes(product->left));
        EXPECT_EQ(product->out[i + each] - product->out[i], bytes(product->result));
      }
      begin += group.tiles;
    }
    EXPECT_EQ(begin, product->out.size());
  }
}

TEST(CudaPlan, RefusesWhatCublasCannotTake) {
  const NewtonSchulzOptions options = OptionsOf({});
  EXPECT_THROW(cuda::MakePlan(options, {64, 64}, 1, 24), std::invalid_argument);
  EXPECT_THROW(cuda::MakePlan(options, {64, 64}, 1, -16), std::invalid_argument);
  const int64_t beyond = int64_t{std::numeric_limits<int>::max()} + 1;
  EXPECT_THROW(cuda::MakePlan(options, {1, beyond}, 1, 0), std::invalid_argument);
  EXPECT_EQ(cuda::ToInt(beyond - 1), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace dmuon::kernels::testing
