#include "kernels/newton_schulz.h"

#include <algorithm>
#include <utility>

namespace dmuon::kernels {
namespace {

constexpr int kDirectSquares = 2;  // A, B
constexpr int kGramSquares = 5;    // R, Z, T, Q and the next Q

void RunDirect(const NewtonSchulzOptions& options, NewtonSchulzOperations& operations) {
  constexpr int kA = 0;
  constexpr int kB = 1;
  const int iterations = static_cast<int>(options.coefficients.size());
  for (int i = 0; i < iterations; ++i) {
    const auto& [a, b, c] = options.coefficients[i];
    operations.GramOfX(kA);
    operations.Multiply({kA, kA, c, kA, b, kB});  // B = bA + cA^2
    operations.ApplyToX(kB, a, i + 1 == iterations);
  }
}

void RunGram(const NewtonSchulzOptions& options, NewtonSchulzOperations& operations) {
  constexpr int kR = 0;
  constexpr int kZ = 1;
  constexpr int kT = 2;
  int q = 3;
  int next_q = 4;
  const int iterations = static_cast<int>(options.coefficients.size());
  const auto restarts_before = [&](int i) {
    return std::find(options.restart.begin(), options.restart.end(), i) != options.restart.end();
  };
  for (int i = 0; i < iterations; ++i) {
    const auto& [a, b, c] = options.coefficients[i];
    const bool first = i == 0 || restarts_before(i);
    const bool last = i + 1 == iterations || restarts_before(i + 1);
    if (first) {
      operations.GramOfX(kR);
    }
    operations.Multiply({kR, kR, c, kR, b, kZ});  // Z = bR + cR^2
    if (first) {
      operations.AddIdentity(kZ, a, q);  // Q = (Z + aI)I
    } else {
      operations.Multiply({q, kZ, 1.0, q, a, next_q});  // Q <- QZ + aQ
      std::swap(q, next_q);
    }
    if (last) {
      operations.ApplyToX(q, 0.0, i + 1 == iterations);
    } else {
      operations.Multiply({kR, kZ, 1.0, kR, a, kT});  // T = RZ + aR
      operations.Multiply({kZ, kT, 1.0, kT, a, kR});  // R <- ZT + aT
    }
  }
}

}  // namespace

NewtonSchulzStorage StorageOf(const NewtonSchulzOptions& options) {
  const bool mixed = options.form == Form::kGram && options.precision == ElementType::kBFloat16;
  return {options.precision, mixed ? ElementType::kFloat32 : options.precision};
}

int SquaresOf(Form form) { return form == Form::kGram ? kGramSquares : kDirectSquares; }

void RunNewtonSchulz(const NewtonSchulzOptions& options, NewtonSchulzOperations& operations) {
  if (options.form == Form::kGram) {
    RunGram(options, operations);
  } else {
    RunDirect(options, operations);
  }
}

}  // namespace dmuon::kernels
