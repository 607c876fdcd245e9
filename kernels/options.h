// What the kernels need to know about a rule. Formulas: kernels/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dmuon::kernels {

enum class ElementType { kFloat32, kBFloat16, kFloat16 };

constexpr int64_t SizeOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

enum class Form { kDirect, kGram };
enum class Normalize { kStrict, kEpsAdd, kEpsMax };
enum class MomentumForm { kSgd, kEma };
enum class UpdateScale { kOriginal, kMatchRmsAdamW, kSpectral, kSpectralMax, kNone };

std::string_view NameOf(ElementType type);  // "fp32", "bf16", "fp16"
std::string_view NameOf(Form form);         // "direct", "gram"

// (a, b, c) of X <- aX + (bA + cA^2)X, A = XX^T, one triple per iteration.
using Coefficients = std::vector<std::array<double, 3>>;

struct NewtonSchulzOptions {
  Coefficients coefficients;
  Normalize normalize = Normalize::kStrict;
  double eps = 1e-7;  // kEpsAdd and kEpsMax only
  Form form = Form::kDirect;
  std::vector<int> restart;  // kGram: 0-based iterations before which X <- QX and R is recomputed
  // Storage of the operands. kFloat32: everything fp32. kBFloat16 with kDirect: all operands bf16;
  // with kGram: X in bf16 and R, Z, Q in fp32 (the mixed form). Accumulation is always fp32.
  ElementType precision = ElementType::kFloat32;

  bool operator==(const NewtonSchulzOptions&) const = default;
};

// The shipped rule for `form: auto` and for `restart` when it is not stated: a pure function of
// shape and precision, so that the numerics of a matrix never depend on where or when it runs.
Form DefaultForm(int64_t rows, int64_t cols, ElementType precision);
std::vector<int> DefaultRestart(int64_t rows, int64_t cols, ElementType precision,
                                const Coefficients& coefficients);

// s(r, c) of the update rule for a matrix of `rows` x `cols`.
double ScaleFactor(UpdateScale scale, int64_t rows, int64_t cols);

// Multiply-adds counted as two, symmetric products as half: 5(3m^2 n + m^3) and the like.
double UsefulFlops(int64_t rows, int64_t cols, const NewtonSchulzOptions& options);

}  // namespace dmuon::kernels
