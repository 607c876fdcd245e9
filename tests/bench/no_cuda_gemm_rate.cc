// Stands in for the CUDA device's rate in builds without that backend.
#include <stdexcept>

#include "tests/bench/gemm_rate.h"

namespace dmuon::kernels::testing {

GemmRate MeasureCudaGemmRate(ElementType) {
  throw std::runtime_error(
      "cuda:0: no rate of its products: this build has no CUDA backend; install the CUDA toolkit "
      "and configure again with -DDMUON_CUDA=ON");
}

}  // namespace dmuon::kernels::testing
