// Newton-Schulz once more, in fp64 and without tricks, and what people run today: what accuracy is
// judged by. Slow; for sizes of a few hundred.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/options.h"

namespace dmuon::kernels::accuracy {

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;  // row-major

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(r * c) {}
  Matrix(int64_t r, int64_t c, std::vector<double> v) : rows(r), cols(c), values(std::move(v)) {}
  double& at(int64_t i, int64_t j) { return values[i * cols + j]; }
  double at(int64_t i, int64_t j) const { return values[i * cols + j]; }
};

Matrix Transposed(const Matrix& a);
Matrix Scaled(const Matrix& a, double factor);
// a * x + b * y, elementwise
Matrix Combine(const Matrix& x, double a, const Matrix& y, double b);
Matrix FromFloats(int64_t rows, int64_t cols, const float* data);
std::vector<float> ToFloats(const Matrix& a);
double Frobenius(const Matrix& a);
// |a - b| / |b|, Frobenius; the absolute |a| where b is zero.
double RelativeError(const Matrix& a, const Matrix& b);

// Nearest value of the format, ties to even; overflow to infinity.
double RoundTo(ElementType type, double value);

// What u is divided by.
double Denominator(double norm, Normalize normalize, double eps);

// X = u / denominator in fp32, then rounded to `type`: the input that accuracy is judged from.
Matrix CastInput(const Matrix& u, Normalize normalize, double eps, ElementType type);

// X <- aX + (bA + cA^2)X in fp64, transposed where higher than wide; no normalisation.
Matrix Polynomial(const Matrix& x, const Coefficients& coefficients);

// The direct iteration with bf16 operands and results and fp32 accumulation: what people run today.
Matrix PlainBFloat16(const Matrix& x, const Coefficients& coefficients);

}  // namespace dmuon::kernels::accuracy
