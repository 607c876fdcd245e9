// The update rules once more, in fp64 and without tricks: what the kernels are judged against.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/accuracy/reference.h"
#include "kernels/device.h"

namespace dmuon::kernels::testing {

using accuracy::CastInput;
using accuracy::Combine;
using accuracy::Denominator;
using accuracy::Frobenius;
using accuracy::FromFloats;
using accuracy::Matrix;
using accuracy::PlainBFloat16;
using accuracy::Polynomial;
using accuracy::RelativeError;
using accuracy::RoundTo;
using accuracy::Scaled;
using accuracy::ToFloats;
using accuracy::Transposed;

struct NamedCoefficients {
  std::string name;
  Coefficients values;
};
const std::array<NamedCoefficients, 3>& CoefficientSets();
const Coefficients& PolarExpress();
const Coefficients& You();
const Coefficients& KellerJordan();

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
