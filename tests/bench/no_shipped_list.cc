// Stands in for the list in builds without Google Benchmark.
#include <stdexcept>

#include "tests/bench/shipped_list.h"

namespace dmuon::kernels::testing {

void TakeBenchmarkOptions(int*, char**) {}

void RunShippedList(const Arguments&) {
  throw std::runtime_error(
      "the shipped list needs Google Benchmark, which this build lacks: name one case with --shape "
      "ROWSxCOLS, or install libbenchmark-dev and configure again");
}

}  // namespace dmuon::kernels::testing
