// The scalars of a step, computed once in fp64: shared by the backends, so that they agree.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/device.h"

namespace dmuon::kernels {

// m <- momentum * m + g,  g = gradient * (gradient_factor * gradient)
// u = nesterov ? g + momentum * m : m
// p <- decay * p - step * O
struct MuonFactors {
  float gradient_factor = 1.0F;
  float momentum = 0.0F;
  float gradient = 1.0F;  // 1 under sgd, 1 - mu under ema
  float decay = 1.0F;     // 1 - lr * wd
  float step = 0.0F;      // lr * s(r, c)
};

MuonFactors MuonFactorsOf(const MuonOptions& options, const MuonValues& values, int64_t rows,
                          int64_t cols);

// v1 <- beta1 * v1 + one_minus_beta1 * g,  g = gradient_factor * gradient
// v2 <- beta2 * v2 + one_minus_beta2 * g * g
// p <- decay * p - step * v1 / (sqrt(v2) * root_correction + eps)
struct AdamWFactors {
  float gradient_factor = 1.0F;
  float decay = 1.0F;  // 1 - lr * wd
  float beta1 = 0.0F;
  float one_minus_beta1 = 1.0F;
  float beta2 = 0.0F;
  float one_minus_beta2 = 1.0F;
  float eps = 0.0F;
  float step = 0.0F;             // lr / (1 - b1^t)
  float root_correction = 1.0F;  // 1 / sqrt(1 - b2^t)
};

AdamWFactors AdamWFactorsOf(const AdamWValues& values);

// How u becomes X: x = (u * prescale) / divisor in fp32, where the prescale is a power of two that
// keeps both the divisor and the quotient representable whatever the norm is.
struct NormalizeFactors {
  float prescale = 1.0F;
  float divisor = 1.0F;
};

// `norm`: the Frobenius norm, in fp64. A norm of zero gives zeros (strict, and where eps is zero);
// one that is not finite gives NaN.
constexpr NormalizeFactors NormalizeFactorsOf(Normalize normalize, double eps, double norm) {
  constexpr double kLarge = 0x1p120;
  constexpr double kSmall = 0x1p-60;
  if (!(norm - norm == 0.0)) {
    return {1.0F, std::numeric_limits<float>::quiet_NaN()};
  }
  double divisor = norm;
  if (normalize == Normalize::kEpsAdd) {
    divisor = norm + eps;
  } else if (normalize == Normalize::kEpsMax) {
    divisor = norm > eps ? norm : eps;
  }
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

// Throws std::invalid_argument naming what no backend can run.
void ValidateMuonStep(const MuonOptions& options, int64_t rows, int64_t cols, std::size_t batch,
                      std::size_t flags);

}  // namespace dmuon::kernels
