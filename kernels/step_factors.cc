#include "kernels/step_factors.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace dmuon::kernels {
namespace {

double Denominator(const NewtonSchulzOptions& options, double norm) {
  switch (options.normalize) {
    case Normalize::kStrict:
      return norm;
    case Normalize::kEpsAdd:
      return norm + options.eps;
    case Normalize::kEpsMax:
      return std::max(norm, options.eps);
  }
  return norm;
}

}  // namespace

MuonFactors MuonFactorsOf(const MuonOptions& options, const MuonValues& values, int64_t rows,
                          int64_t cols) {
  MuonFactors factors;
  factors.gradient_factor = static_cast<float>(values.gradient_factor);
  factors.momentum = static_cast<float>(values.momentum);
  factors.gradient = options.momentum_form == MomentumForm::kEma
                         ? static_cast<float>(1.0 - values.momentum)
                         : 1.0F;
  factors.decay = static_cast<float>(1.0 - values.lr * values.weight_decay);
  factors.step = static_cast<float>(values.lr * ScaleFactor(options.scale, rows, cols));
  return factors;
}

NormalizeFactors NormalizeFactorsOf(const NewtonSchulzOptions& options, double squared_sum) {
  constexpr double kLarge = 0x1p120;
  constexpr double kSmall = 0x1p-60;
  if (!std::isfinite(squared_sum)) {
    return {1.0F, std::nanf("")};
  }
  const double divisor = Denominator(options, std::sqrt(squared_sum));
  if (divisor <= 0.0) {
    return {0.0F, 1.0F};
  }
  float prescale = 1.0F;
  if (divisor > kLarge) {
    prescale = 0x1p-64F;
  } else if (divisor < kSmall) {
    prescale = 0x1p64F;
  }
  return {prescale, static_cast<float>(divisor * prescale)};
}

void ValidateMuonOptions(const MuonOptions& options, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1) {
    throw std::invalid_argument("Muon step: shape " + std::to_string(rows) + " x " +
                                std::to_string(cols) + " has no elements");
  }
  if (options.momentum_type == ElementType::kFloat16) {
    throw std::invalid_argument("Muon step: momentum type fp16 is not offered: use fp32 or bf16");
  }
  if (options.newton_schulz.coefficients.empty()) {
    throw std::invalid_argument("Muon step: coefficients are empty: give at least one triple");
  }
}

}  // namespace dmuon::kernels
