#include "kernels/options.h"

#include <algorithm>
#include <cmath>

namespace dmuon::kernels {
namespace {

// Useful flops of one Gram segment (R, `iterations` iterations, X <- QX): m^2 n for R, 2 m^2 n for
// QX; in m^3: one per R^2, one per Q <- QZ + aQ (free in the first iteration, where Q = I), two per
// R <- (Z + aI)R(Z + aI) (not needed in the last).
double GramSegmentFlops(double m, double n, double iterations) {
  return 3.0 * m * m * n + (4.0 * iterations - 3.0) * m * m * m;
}

double GramFlops(double m, double n, int iterations, const std::vector<int>& restart) {
  double flops = 0.0;
  int begin = 0;
  for (int end = 1; end <= iterations; ++end) {
    const bool cut =
        end == iterations || std::find(restart.begin(), restart.end(), end) != restart.end();
    if (cut) {
      flops += GramSegmentFlops(m, n, end - begin);
      begin = end;
    }
  }
  return flops;
}

}  // namespace

std::string_view NameOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "fp32";
    case ElementType::kBFloat16:
      return "bf16";
    case ElementType::kFloat16:
      return "fp16";
  }
  return "unknown";
}

std::string_view NameOf(Form form) { return form == Form::kDirect ? "direct" : "gram"; }

double ScaleFactor(UpdateScale scale, int64_t rows, int64_t cols) {
  const double r = static_cast<double>(rows);
  const double c = static_cast<double>(cols);
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
  return 1.0;
}

double UsefulFlops(int64_t rows, int64_t cols, const NewtonSchulzOptions& options) {
  const double m = static_cast<double>(std::min(rows, cols));
  const double n = static_cast<double>(std::max(rows, cols));
  const int iterations = static_cast<int>(options.coefficients.size());
  if (options.form == Form::kGram) {
    return GramFlops(m, n, iterations, options.restart);
  }
  return iterations * (3.0 * m * m * n + m * m * m);
}

// Measurements behind both rules: kernels/README.md.
Form DefaultForm(int64_t rows, int64_t cols, ElementType) {
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  return m >= 32 && n >= 2 * m ? Form::kGram : Form::kDirect;
}

std::vector<int> DefaultRestart(int64_t, int64_t, ElementType, const Coefficients& coefficients) {
  return coefficients.size() > 2 ? std::vector<int>{2} : std::vector<int>{};
}

}  // namespace dmuon::kernels
