#include "kernels/accuracy/rule.h"

#include <algorithm>

namespace dmuon::kernels::accuracy {
namespace {

constexpr double kDirectLimit = 5e-5;
constexpr double kGramLimit = 3e-4;
constexpr double kHalfRatio = 1.2;
constexpr int64_t kSmallerSide = 128;
constexpr int64_t kLargerSide = 4096;
constexpr uint64_t kSeed = 7;

Matrix ExactDirection(const Matrix& u, const NewtonSchulzOptions& options, ElementType type) {
  return Polynomial(CastInput(u, options.normalize, options.eps, type), options.coefficients);
}

double LimitFor(const Matrix& u, const NewtonSchulzOptions& options) {
  if (options.precision == ElementType::kFloat32) {
    return options.form == Form::kGram ? kGramLimit : kDirectLimit;
  }
  constexpr ElementType kPlain = ElementType::kBFloat16;
  const Matrix cast = CastInput(u, options.normalize, options.eps, kPlain);
  return kHalfRatio * RelativeError(PlainBFloat16(cast, options.coefficients),
                                    Polynomial(cast, options.coefficients));
}

bool CanRepresent(InputClass input, const NewtonSchulzOptions& options) {
  return input != InputClass::kTiny || options.precision != ElementType::kFloat16 ||
         options.normalize == Normalize::kStrict;
}

}  // namespace

Shape ReducedShape(int64_t rows, int64_t cols) {
  const auto smaller = static_cast<double>(std::min(rows, cols));
  const double scale = std::min(1.0, static_cast<double>(kSmallerSide) / smaller);
  const auto scaled = [&](int64_t size) {
    const auto reduced = static_cast<int64_t>(static_cast<double>(size) * scale);
    return std::clamp<int64_t>(reduced, 1, kLargerSide);
  };
  return {scaled(rows), scaled(cols)};
}

std::vector<JudgedInput> MakeJudgedInputs(const Shape& shape, const NewtonSchulzOptions& options) {
  std::vector<JudgedInput> inputs;
  for (const InputClass input : AllInputClasses()) {
    if (CanRepresent(input, options)) {
      JudgedInput& judged = inputs.emplace_back();
      judged.input = input;
      judged.u = MakeInput(input, shape.rows, shape.cols, kSeed);
      judged.exact = ExactDirection(judged.u, options, options.precision);
      judged.limit = LimitFor(judged.u, options);
    }
  }
  return inputs;
}

}  // namespace dmuon::kernels::accuracy
