// The scalars of a Muon step, computed once in fp64: shared by the backends.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace dmuon::kernels {

// m <- momentum * m + gradient * g
// u = nesterov ? gradient * g + momentum * m : m        (g already includes gradient_factor)
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

// How u becomes X: x = (u * prescale) / divisor in fp32, where the prescale is a power of two that
// keeps both the divisor and the quotient representable whatever the norm is.
struct NormalizeFactors {
  float prescale = 1.0F;
  float divisor = 1.0F;
};

// From the fp64 sum of squares. A norm of zero gives zeros; one that is not finite gives NaN.
NormalizeFactors NormalizeFactorsOf(const NewtonSchulzOptions& options, double squared_sum);

// Throws std::invalid_argument naming the option that no backend can run.
void ValidateMuonOptions(const MuonOptions& options, int64_t rows, int64_t cols);

}  // namespace dmuon::kernels
