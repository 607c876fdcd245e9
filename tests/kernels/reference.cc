#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dmuon::kernels::testing {
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

double ReferenceScale(UpdateScale scale, double r, double c) {
  switch (scale) {
    case UpdateScale::kOriginal:
      return std::sqrt(std::max(1.0, r / c));
    case UpdateScale::kMatchRmsAdamW:
      return 0.2 * std::sqrt(std::max(r, c));
    case UpdateScale::kSpectral:
      return std::sqrt(r / c);
    case UpdateScale::kSpectralMax:
      return std::sqrt(std::max(r, c));
    case UpdateScale::kNone:
      return 1.0;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Rounds to `bits` significant bits with a smallest step of 2^min_exponent.
double RoundToBits(double value, int bits, int min_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int step = std::max(exponent - bits, min_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

Coefficients MakePolarExpress() {
  Coefficients published = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                            {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                            {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                            {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                            {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};
  for (auto& [a, b, c] : published) {
    a /= 1.05;
    b /= std::pow(1.05, 3);
    c /= std::pow(1.05, 5);
  }
  return published;
}

}  // namespace

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

const Coefficients& PolarExpress() { return CoefficientSets()[0].values; }
const Coefficients& You() { return CoefficientSets()[1].values; }
const Coefficients& KellerJordan() { return CoefficientSets()[2].values; }

const std::array<NamedCoefficients, 3>& CoefficientSets() {
  static const std::array<NamedCoefficients, 3> sets = {
      NamedCoefficients{"polar_express", MakePolarExpress()},
      NamedCoefficients{"you",
                        {{4.0848, -6.8946, 2.9270},
                         {3.9505, -6.3029, 2.6377},
                         {3.7418, -5.5913, 2.3037},
                         {2.8769, -3.1427, 1.2046},
                         {2.8366, -3.0525, 1.2012}}},
      NamedCoefficients{"keller_jordan", Coefficients(5, {3.4445, -4.7750, 2.0315})}};
  return sets;
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

Matrix ReferenceNewtonSchulz(const Matrix& u, const NewtonSchulzOptions& options) {
  const double denominator = Denominator(Frobenius(u), options.normalize, options.eps);
  const Matrix x = denominator > 0.0 ? Scaled(u, 1.0 / denominator) : Matrix(u.rows, u.cols);
  return Polynomial(x, options.coefficients);
}

ReferenceState ReferenceMuonStep(const MuonOptions& options, const MuonValues& values,
                                 const ReferenceState& state, const Matrix& gradient) {
  const double mu = values.momentum;
  const double weight = options.momentum_form == MomentumForm::kEma ? 1.0 - mu : 1.0;
  const Matrix g = Scaled(gradient, weight * values.gradient_factor);
  ReferenceState next;
  next.momentum = Combine(state.momentum, mu, g, 1.0);
  const Matrix u = options.nesterov ? Combine(g, 1.0, next.momentum, mu) : next.momentum;
  const Matrix o = ReferenceNewtonSchulz(u, options.newton_schulz);
  const double scale = ReferenceScale(options.scale, static_cast<double>(gradient.rows),
                                      static_cast<double>(gradient.cols));
  next.master = Combine(state.master, 1.0 - values.lr * values.weight_decay, o, -values.lr * scale);
  return next;
}

AdamWState ReferenceAdamW(const AdamWValues& values, const AdamWState& state, double gradient) {
  const double g = values.gradient_factor * gradient;
  AdamWState next;
  next.exp_avg = values.beta1 * state.exp_avg + (1.0 - values.beta1) * g;
  next.exp_avg_sq = values.beta2 * state.exp_avg_sq + (1.0 - values.beta2) * g * g;
  const auto t = static_cast<double>(values.step);
  const double corrected = next.exp_avg_sq / (1.0 - std::pow(values.beta2, t));
  next.master = (1.0 - values.lr * values.weight_decay) * state.master -
                values.lr / (1.0 - std::pow(values.beta1, t)) * next.exp_avg /
                    (std::sqrt(corrected) + values.eps);
  return next;
}

}  // namespace dmuon::kernels::testing
