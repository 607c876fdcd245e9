#include "kernels/accuracy/reference.h"

#include <algorithm>
#include <cmath>

namespace dmuon::kernels::accuracy {
namespace {

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.cols; ++k) {
      const double factor = a.at(i, k);
      const double* from = &b.values[k * b.cols];
      double* to = &c.values[i * b.cols];
      for (int64_t j = 0; j < b.cols; ++j) {
        to[j] += factor * from[j];
      }
    }
  }
  return c;
}

// fp32 accumulation of operands that fp32 holds exactly.
Matrix ProductInFloat(const Matrix& a, const Matrix& b) {
  const std::vector<float> right = ToFloats(b);
  Matrix c(a.rows, b.cols);
  std::vector<float> sums(b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t k = 0; k < a.cols; ++k) {
      const auto factor = static_cast<float>(a.at(i, k));
      const float* from = &right[k * b.cols];
      for (int64_t j = 0; j < b.cols; ++j) {
        sums[j] += factor * from[j];
      }
    }
    std::copy(sums.begin(), sums.end(), &c.values[i * b.cols]);
  }
  return c;
}

// round(x * a + y * b), elementwise
Matrix Combine(const Matrix& x, double a, const Matrix& y, double b, ElementType type) {
  Matrix result(x.rows, x.cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    result.values[i] = RoundTo(type, a * x.values[i] + b * y.values[i]);
  }
  return result;
}

// Rounds to `bits` significant bits with a smallest step of 2^min_exponent.
double RoundToBits(double value, int bits, int min_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int step = std::max(exponent - bits, min_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

}  // namespace

Matrix Combine(const Matrix& x, double a, const Matrix& y, double b) {
  Matrix result(x.rows, x.cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    result.values[i] = a * x.values[i] + b * y.values[i];
  }
  return result;
}

double Denominator(double norm, Normalize normalize, double eps) {
  switch (normalize) {
    case Normalize::kEpsAdd:
      return norm + eps;
    case Normalize::kEpsMax:
      return std::max(norm, eps);
    default:
      return norm;
  }
}

Matrix Transposed(const Matrix& a) {
  Matrix result(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) {
      result.at(j, i) = a.at(i, j);
    }
  }
  return result;
}

Matrix Scaled(const Matrix& a, double factor) { return Combine(a, factor, a, 0.0); }

Matrix FromFloats(int64_t rows, int64_t cols, const float* data) {
  return Matrix(rows, cols, std::vector<double>(data, data + rows * cols));
}

std::vector<float> ToFloats(const Matrix& a) {
  return std::vector<float>(a.values.begin(), a.values.end());
}

double Frobenius(const Matrix& a) {
  double sum = 0.0;
  for (const double value : a.values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

double RelativeError(const Matrix& a, const Matrix& b) {
  const double size = Frobenius(b);
  const double error = Frobenius(Combine(a, 1.0, b, -1.0));
  return size > 0.0 ? error / size : error;
}

double RoundTo(ElementType type, double value) {
  if (!std::isfinite(value) || value == 0.0) {
    return value;
  }
  switch (type) {
    case ElementType::kFloat32:
      return static_cast<float>(value);
    case ElementType::kBFloat16: {
      const double rounded = RoundToBits(value, 8, -133);
      return std::fabs(rounded) < 0x1p128 ? rounded : std::copysign(INFINITY, value);
    }
    case ElementType::kFloat16: {
      const double rounded = RoundToBits(value, 11, -24);
      return std::fabs(rounded) < 0x1p16 ? rounded : std::copysign(INFINITY, value);
    }
  }
  return value;
}

Matrix CastInput(const Matrix& u, Normalize normalize, double eps, ElementType type) {
  const double denominator = Denominator(Frobenius(u), normalize, eps);
  Matrix x(u.rows, u.cols);
  for (std::size_t i = 0; i < u.values.size(); ++i) {
    const double quotient = denominator > 0.0 ? u.values[i] / denominator : 0.0;
    x.values[i] = RoundTo(type, static_cast<float>(quotient));
  }
  return x;
}

Matrix Polynomial(const Matrix& x, const Coefficients& coefficients) {
  if (x.rows > x.cols) {
    return Transposed(Polynomial(Transposed(x), coefficients));
  }
  Matrix result = x;
  for (const auto& [a, b, c] : coefficients) {
    const Matrix gram = Product(result, Transposed(result));
    const Matrix inner = Combine(gram, b, Product(gram, gram), c);
    result = Combine(result, a, Product(inner, result), 1.0);
  }
  return result;
}

Matrix PlainBFloat16(const Matrix& x, const Coefficients& coefficients) {
  if (x.rows > x.cols) {
    return Transposed(PlainBFloat16(Transposed(x), coefficients));
  }
  constexpr ElementType kType = ElementType::kBFloat16;
  Matrix result = x;
  for (const auto& [a, b, c] : coefficients) {
    const Matrix sums = ProductInFloat(result, Transposed(result));
    const Matrix gram = Combine(sums, 1.0, sums, 0.0, kType);
    const Matrix inner = Combine(gram, b, ProductInFloat(gram, gram), c, kType);
    result = Combine(result, a, ProductInFloat(inner, result), 1.0, kType);
  }
  return result;
}

}  // namespace dmuon::kernels::accuracy
