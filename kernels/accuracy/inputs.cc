#include "kernels/accuracy/inputs.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace dmuon::kernels::accuracy {
namespace {

constexpr int64_t kLowRank = 8;

Matrix Gaussian(int64_t rows, int64_t cols, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Matrix a(rows, cols);
  std::generate(a.values.begin(), a.values.end(), [&] { return normal(random); });
  return a;
}

// Orthonormal rows, by Gram-Schmidt done twice.
Matrix Orthonormal(int64_t rows, int64_t cols, std::mt19937_64& random) {
  Matrix q = Gaussian(rows, cols, random);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t previous = 0; previous < 2 * i; ++previous) {
      const int64_t j = previous % i;
      double dot = 0.0;
      for (int64_t k = 0; k < cols; ++k) {
        dot += q.at(i, k) * q.at(j, k);
      }
      for (int64_t k = 0; k < cols; ++k) {
        q.at(i, k) -= dot * q.at(j, k);
      }
    }
    double norm = 0.0;
    for (int64_t k = 0; k < cols; ++k) {
      norm += q.at(i, k) * q.at(i, k);
    }
    norm = std::sqrt(norm);
    for (int64_t k = 0; k < cols; ++k) {
      q.at(i, k) /= norm;
    }
  }
  return q;
}

// left^T diag(singular) right, with orthonormal factors.
Matrix WithSpectrum(int64_t rows, int64_t cols, const std::vector<double>& singular,
                    std::mt19937_64& random) {
  const auto rank = static_cast<int64_t>(singular.size());
  const Matrix left = Orthonormal(rank, rows, random);
  const Matrix right = Orthonormal(rank, cols, random);
  Matrix a(rows, cols);
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t i = 0; i < rows; ++i) {
      const double factor = singular[r] * left.at(r, i);
      for (int64_t j = 0; j < cols; ++j) {
        a.at(i, j) += factor * right.at(r, j);
      }
    }
  }
  return a;
}

std::vector<double> LogSpaced(int64_t count, double condition) {
  std::vector<double> values(count, 1.0);
  for (int64_t i = 1; i < count; ++i) {
    values[i] = std::pow(condition, -static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return values;
}

std::vector<double> PowerLaw(int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 1.0 / static_cast<double>(i + 1);
  }
  return values;
}

Matrix MakeExact(InputClass input, int64_t rows, int64_t cols, std::mt19937_64& random) {
  const int64_t m = std::min(rows, cols);
  switch (input) {
    case InputClass::kGaussian:
      return Gaussian(rows, cols, random);
    case InputClass::kPowerLaw:
      return WithSpectrum(rows, cols, PowerLaw(m), random);
    case InputClass::kCondition1e4:
      return WithSpectrum(rows, cols, LogSpaced(m, 1e4), random);
    case InputClass::kCondition1e6:
      return WithSpectrum(rows, cols, LogSpaced(m, 1e6), random);
    case InputClass::kLowRank:
      return WithSpectrum(rows, cols, std::vector<double>(std::min(m, kLowRank), 1.0), random);
    case InputClass::kOneRow: {
      Matrix a = Gaussian(rows, cols, random);
      std::fill(a.values.begin() + cols, a.values.end(), 0.0);
      return a;
    }
    case InputClass::kHuge:
      return Scaled(Gaussian(rows, cols, random), 1e30);
    case InputClass::kTiny:
      return Scaled(Gaussian(rows, cols, random), 1e-30);
  }
  return Matrix(rows, cols);
}

}  // namespace

const std::vector<InputClass>& AllInputClasses() {
  static const std::vector<InputClass> all = {InputClass::kGaussian,     InputClass::kPowerLaw,
                                              InputClass::kCondition1e4, InputClass::kCondition1e6,
                                              InputClass::kLowRank,      InputClass::kOneRow,
                                              InputClass::kHuge,         InputClass::kTiny};
  return all;
}

std::string NameOf(InputClass input) {
  switch (input) {
    case InputClass::kGaussian:
      return "gaussian";
    case InputClass::kPowerLaw:
      return "power_law";
    case InputClass::kCondition1e4:
      return "condition_1e4";
    case InputClass::kCondition1e6:
      return "condition_1e6";
    case InputClass::kLowRank:
      return "rank_8";
    case InputClass::kOneRow:
      return "one_row";
    case InputClass::kHuge:
      return "huge";
    case InputClass::kTiny:
      return "tiny";
  }
  return "unknown";
}

Matrix MakeInput(InputClass input, int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + static_cast<uint64_t>(input));
  Matrix a = MakeExact(input, rows, cols, random);
  for (double& value : a.values) {
    value = static_cast<float>(value);
  }
  return a;
}

}  // namespace dmuon::kernels::accuracy
