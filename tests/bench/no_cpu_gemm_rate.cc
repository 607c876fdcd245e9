// Stands in for the CPU's rate in builds without that backend.
#include <stdexcept>

#include "tests/bench/gemm_rate.h"

namespace dmuon::kernels::testing {

GemmRate MeasureCpuGemmRate(ElementType, int) {
  throw std::runtime_error(
      "cpu: no rate of its products: this build has no CPU backend; install oneDNN (libdnnl-dev) "
      "and configure again with -DDMUON_CPU=ON");
}

}  // namespace dmuon::kernels::testing
