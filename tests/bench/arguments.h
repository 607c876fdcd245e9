// The command line of bench_newton_schulz, read without a library: builds of the kernels alone have
// none.
#pragma once

#include <string>

#include "tests/bench/newton_schulz_case.h"

namespace dmuon::kernels::testing {

struct Arguments {
  CaseRequest request;
  std::string shape;  // as stated; empty: the shipped list
  bool json = false;
  bool accuracy = true;
  bool help = false;
};

std::string Usage();

// Throws std::invalid_argument naming the option or the value.
Arguments ParseArguments(int argc, const char* const* argv);

}  // namespace dmuon::kernels::testing
