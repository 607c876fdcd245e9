#include "kernels/step_factors.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace dmuon::kernels {

MuonFactors MuonFactorsOf(const MuonOptions& options, const MuonValues& values, int64_t rows,
                          int64_t cols) {
  MuonFactors factors;
  factors.gradient_factor = static_cast<float>(values.gradient_factor);
  factors.momentum = static_cast<float>(values.momentum);
  factors.gradient = options.momentum_form == MomentumForm::kEma
                         ? static_cast<float>(1.0 - values.momentum)
                         : 1.0F;
  factors.decay = static_cast<float>(1.0 - values.lr * values.weight_decay);
  factors.step = static_cast<float>(values.lr * ScaleFactor(options.scale, rows, cols));
  return factors;
}

AdamWFactors AdamWFactorsOf(const AdamWValues& values) {
  const auto t = static_cast<double>(values.step);
  AdamWFactors factors;
  factors.gradient_factor = static_cast<float>(values.gradient_factor);
  factors.decay = static_cast<float>(1.0 - values.lr * values.weight_decay);
  factors.beta1 = static_cast<float>(values.beta1);
  factors.one_minus_beta1 = static_cast<float>(1.0 - values.beta1);
  factors.beta2 = static_cast<float>(values.beta2);
  factors.one_minus_beta2 = static_cast<float>(1.0 - values.beta2);
  factors.eps = static_cast<float>(values.eps);
  factors.step = static_cast<float>(values.lr / (1.0 - std::pow(values.beta1, t)));
  factors.root_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(values.beta2, t)));
  return factors;
}

void ValidateMuonStep(const MuonOptions& options, int64_t rows, int64_t cols, std::size_t batch,
                      std::size_t flags) {
  if (rows < 1 || cols < 1) {
    throw std::invalid_argument("Muon step: shape " + std::to_string(rows) + " x " +
                                std::to_string(cols) +
                                " has no elements: leave such parameters out of the batch");
  }
  if (options.momentum_type == ElementType::kFloat16) {
    throw std::invalid_argument("Muon step: momentum type fp16 is not offered: use fp32 or bf16");
  }
  if (options.newton_schulz.coefficients.empty()) {
    throw std::invalid_argument("Muon step: coefficients are empty: give at least one triple");
  }
  if (flags < batch) {
    throw std::invalid_argument("Muon step: " + std::to_string(flags) + " finite flags for " +
                                std::to_string(batch) + " matrices: give one per matrix");
  }
}

}  // namespace dmuon::kernels
