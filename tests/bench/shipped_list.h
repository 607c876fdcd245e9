// The shapes of the project's goals, through Google Benchmark.
#pragma once

#include "tests/bench/arguments.h"

namespace dmuon::kernels::testing {

// Takes Google Benchmark's own options out of the command line; nothing in builds without it.
void TakeBenchmarkOptions(int* argc, char** argv);

// Throws std::runtime_error in builds without Google Benchmark.
void RunShippedList(const Arguments& arguments);

}  // namespace dmuon::kernels::testing
