// The update rules once more, in fp64 and without tricks: what the kernels are judged against.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace dmuon::kernels::testing {

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
Matrix FromFloats(int64_t rows, int64_t cols, const float* data);
std::vector<float> ToFloats(const Matrix& a);
double Frobenius(const Matrix& a);
// |a - b| / |b|, Frobenius; the absolute |a| where b is zero.
double RelativeError(const Matrix& a, const Matrix& b);

// Nearest value of the format, ties to even; overflow to infinity.
double RoundTo(ElementType type, double value);

struct NamedCoefficients {
  std::string name;
  Coefficients values;
};
const std::array<NamedCoefficients, 3>& CoefficientSets();
const Coefficients& PolarExpress();
const Coefficients& You();
const Coefficients& KellerJordan();

// X = u / denominator in fp32, then rounded to `type`: the input that accuracy is judged from.
Matrix CastInput(const Matrix& u, Normalize normalize, double eps, ElementType type);

// X <- aX + (bA + cA^2)X in fp64, transposed where higher than wide; no normalisation.
Matrix Polynomial(const Matrix& x, const Coefficients& coefficients);

// The direct iteration with bf16 operands and results and fp32 accumulation: what people run today.
Matrix PlainBFloat16(const Matrix& x, const Coefficients& coefficients);

// NS(u) in fp64, normalised exactly.
Matrix ReferenceNewtonSchulz(const Matrix& u, const NewtonSchulzOptions& options);

struct ReferenceState {
  Matrix master;
  Matrix momentum;
};

// The Muon step of update-rules in fp64.
ReferenceState ReferenceMuonStep(const MuonOptions& options, const MuonValues& values,
                                 const ReferenceState& state, const Matrix& gradient);

struct AdamWState {
  double master = 0.0;
  double exp_avg = 0.0;
  double exp_avg_sq = 0.0;
};

AdamWState ReferenceAdamW(const AdamWValues& values, const AdamWState& state, double gradient);

}  // namespace dmuon::kernels::testing
