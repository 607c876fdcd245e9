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

// One case in a run: everything from the same round, the one whose fraction of the roofline is the
// median.
struct Measurement {
  double step_s = 0.0;  // median of the round's steps
  Rates rates;
  double roofline = 0.0;
};

// Three rounds, each of the rates and then of at least five steps that take a third of a second or
// more, warm: what slows the machine for some seconds slows both sides of a fraction.
Measurement MeasureRounds(const CaseOptions& options, NewtonSchulzCase& measured);

// Median of at least five runs that take a third of a second or more, without warming up.
double Median_s(const std::function<void()>& run);

}  // namespace dmuon::kernels::testing
