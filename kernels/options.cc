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

// The rules are shapes of the measurements in kernels/README.md: Gram where it is clearly cheaper.
// bf16 means the mixed form there, whose products of squares run at fp32 speed.
Form DefaultForm(int64_t rows, int64_t cols, ElementType precision) {
  constexpr int64_t kSmallest = 64;  // below, calls cost more than arithmetic
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  int64_t halves = 0;  // Gram from n / m = halves / 2
  switch (precision) {
    case ElementType::kFloat32:
      halves = 3;
      break;
    case ElementType::kBFloat16:
      halves = 5;
      break;
    case ElementType::kFloat16:
      halves = 4;
      break;
  }
  return m >= kSmallest && 2 * n >= halves * m ? Form::kGram : Form::kDirect;
}

// Small eigenvalues of R, rounding errors among them, grow by a^2 per iteration; a restart makes R
// exact again. So a segment ends before its growth passes what the storage of R can bear.
std::vector<int> DefaultRestart(int64_t, int64_t, ElementType precision,
                                const Coefficients& coefficients) {
  double limit = 0.0;
  switch (precision) {
    case ElementType::kFloat32:
      limit = 2e3;
      break;
    case ElementType::kBFloat16:  // R is fp32, and each restart rounds X to bf16 again
      limit = 1e6;
      break;
    case ElementType::kFloat16:
      limit = 1e3;
      break;
  }
  std::vector<int> restart;
  double growth = 1.0;
  for (int i = 0; i < static_cast<int>(coefficients.size()); ++i) {
    const double a = coefficients[i][0];
    const double factor = std::max(1.0, a * a);
    if (growth > 1.0 && growth * factor > limit) {
      restart.push_back(i);
      growth = 1.0;
    }
    growth *= factor;
  }
  return restart;
}

}  // namespace dmuon::kernels
