// The denominator of every roofline: what this machine's plain matrix products reach right now.
#pragma once

#include <string>

#include "kernels/options.h"

namespace dmuon::kernels::testing {

struct GemmRate {
  double gflops = 0.0;  // all threads together
  std::string how;      // the candidate that reached it, "256x256x1024 tiles, fp32"
};

// The best rate over tile sizes, each thread working on tiles of its own; operands of `type`, sums
// in fp32. Takes about a second. bf16 without hardware is the emulation's rate. Throws
// std::runtime_error in builds without the CPU backend.
GemmRate MeasureCpuGemmRate(ElementType type, int threads);

// The best rate over sizes of one cuBLAS product on cuda:0; operands and result of `type`, sums in
// fp32, and the settings that the backend uses (no TF32). Takes some seconds. Throws
// std::runtime_error without such a device, in builds without the CUDA backend too.
GemmRate MeasureCudaGemmRate(ElementType type);

}  // namespace dmuon::kernels::testing
