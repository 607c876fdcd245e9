#include "tests/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dmuon::kernels::testing {
namespace {

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
