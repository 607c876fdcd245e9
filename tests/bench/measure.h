// Rates and times of a case, measured once per process where they are the same.
#pragma once

#include <functional>

#include "tests/bench/gemm_rate.h"
#include "tests/bench/newton_schulz_case.h"

namespace dmuon::kernels::testing {

struct Rates {
  GemmRate x;       // of products with X
  GemmRate square;  // of products of squares
};

// Measured once per device, type and thread count.
Rates RatesOf(const CaseOptions& options);

// Median of at least nine runs that take at least a second together, warm.
double Median_s(const std::function<void()>& run);
double MedianStep_s(NewtonSchulzCase& measured);

}  // namespace dmuon::kernels::testing
