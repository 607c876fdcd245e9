// The denominator of every roofline: what this machine's plain matrix products reach right now.
#pragma once

#include <string>

#include "kernels/options.h"

namespace dmuon::kernels::testing {

struct GemmRate {
  double gflops = 0.0;  // all threads together
  std::string how;      // the candidate that reached it, "256x256x1024 tiles"
};

// The best rate over tile sizes, each thread working on tiles of its own; operands of `type`, sums
// in fp32. Takes about a second. bf16 without hardware is the emulation's rate.
GemmRate MeasureGemmRate(ElementType type, int threads);

}  // namespace dmuon::kernels::testing
