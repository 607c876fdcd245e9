// Input classes on which accuracy is measured: the errors of Newton-Schulz depend on the spectrum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/accuracy/reference.h"

namespace dmuon::kernels::accuracy {

enum class InputClass {
  kGaussian,
  kPowerLaw,      // singular values 1/i
  kCondition1e4,  // singular values log-spaced over four decades
  kCondition1e6,
  kLowRank,  // rank 8
  kOneRow,   // one row that is not zero
  kHuge,     // Gaussian times 1e30
  kTiny,     // Gaussian times 1e-30
};

const std::vector<InputClass>& AllInputClasses();
std::string NameOf(InputClass input);

// Deterministic in all arguments. Values are exact in fp32.
Matrix MakeInput(InputClass input, int64_t rows, int64_t cols, uint64_t seed);

}  // namespace dmuon::kernels::accuracy
