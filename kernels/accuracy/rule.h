// The accuracy rule: how far a step's direction may be from the fp64 polynomial of the cast input.
//
// fp32: 5e-5 in the direct form, 3e-4 in the Gram form, relative and Frobenius. bf16, mixed and
// fp16: 1.2 times the error of the plain direct iteration in bf16 on the same input. On every input
// class.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/accuracy/inputs.h"
#include "kernels/accuracy/reference.h"
#include "kernels/options.h"

namespace dmuon::kernels::accuracy {

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  bool operator==(const Shape&) const = default;
};

// A shape of the same proportions on which the fp64 reference takes less than a second per class:
// the smaller side at most 128, the larger one cut at 4096.
Shape ReducedShape(int64_t rows, int64_t cols);

struct JudgedInput {
  InputClass input = InputClass::kGaussian;
  Matrix u;      // as it comes out of momentum
  Matrix exact;  // the direction in fp64
  double limit = 0.0;
};

// One input of every class that the numerics can represent: under eps_add and eps_max, X of a tiny
// input is far below the smallest fp16.
std::vector<JudgedInput> MakeJudgedInputs(const Shape& shape, const NewtonSchulzOptions& options);

}  // namespace dmuon::kernels::accuracy
