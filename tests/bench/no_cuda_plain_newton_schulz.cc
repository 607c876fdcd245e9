// Stands in for the plain iteration on CUDA in builds without that backend.
#include <stdexcept>

#include "tests/bench/plain_newton_schulz.h"

namespace dmuon::kernels::testing {

class PlainNewtonSchulz::Iteration {};

PlainNewtonSchulz::PlainNewtonSchulz(int64_t, int64_t, int64_t) {
  throw std::runtime_error(
      "cuda:0: no plain iteration to compare with: this build has no CUDA backend; install the "
      "CUDA "
      "toolkit and configure again with -DDMUON_CUDA=ON");
}

PlainNewtonSchulz::~PlainNewtonSchulz() = default;

void PlainNewtonSchulz::Run() {}

}  // namespace dmuon::kernels::testing
