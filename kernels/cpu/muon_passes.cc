#include "kernels/cpu/muon_passes.h"

#include "kernels/cpu/vector_clones.h"
#include "kernels/half_types.h"

namespace dmuon::kernels {
namespace {

inline float LoadMomentum(float value) { return value; }
inline float LoadMomentum(uint16_t value) { return FloatFromBFloat16(value); }

// Stores and returns the value as stored: what the next step will read.
inline float StoreMomentum(float value, float* to) { return *to = value; }
inline float StoreMomentum(float value, uint16_t* to) {
  *to = BFloat16FromFloat(value);
  return FloatFromBFloat16(*to);
}

// u = gradient * g' + momentum * m' (nesterov) or m', from m' as it is stored. The factors come by
// value: constants of the loop.
template <typename Momentum>
inline __attribute__((always_inline)) bool ComputeMomentum(const MuonFactors f, bool nesterov,
                                                           const float* gradient,
                                                           const Momentum* momentum, int64_t size,
                                                           Momentum* new_momentum, float* u) {
  uint32_t not_finite = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float g = f.gradient * (f.gradient_factor * gradient[i]);
    const float m = StoreMomentum(f.momentum * LoadMomentum(momentum[i]) + g, new_momentum + i);
    u[i] = nesterov ? g + f.momentum * m : m;
    not_finite |= NotFinite(m);
  }
  return not_finite == 0;
}

DMUON_VECTOR_CLONES
bool ComputeMomentumFloat(const MuonFactors f, bool nesterov, const float* gradient,
                          const float* momentum, int64_t size, float* new_momentum, float* u) {
  return ComputeMomentum(f, nesterov, gradient, momentum, size, new_momentum, u);
}

DMUON_VECTOR_CLONES
bool ComputeMomentumBFloat16(const MuonFactors f, bool nesterov, const float* gradient,
                             const uint16_t* momentum, int64_t size, uint16_t* new_momentum,
                             float* u) {
  return ComputeMomentum(f, nesterov, gradient, momentum, size, new_momentum, u);
}

DMUON_VECTOR_CLONES
bool ComputeUpdate(const MuonFactors f, const float* master, const float* direction, int64_t size,
                   float* to) {
  uint32_t not_finite = 0;
  for (int64_t i = 0; i < size; ++i) {
    to[i] = f.decay * master[i] - f.step * direction[i];
    not_finite |= NotFinite(to[i]);
  }
  return not_finite == 0;
}

}  // namespace

bool MomentumRun(const MuonFactors& factors, const MuonOptions& options, const MuonMatrix& matrix,
                 int64_t begin, int64_t size, bool streamed, float* u) {
  alignas(64) float run[kRunElements];
  const int64_t bytes = size * SizeOf(options.momentum_type);
  const float* gradient = matrix.gradient + begin;
  bool finite;
  if (options.momentum_type == ElementType::kBFloat16) {
    auto* halves = reinterpret_cast<uint16_t*>(run);
    finite = ComputeMomentumBFloat16(factors, options.nesterov, gradient,
                                     static_cast<const uint16_t*>(matrix.momentum) + begin, size,
                                     halves, u);
  } else {
    finite = ComputeMomentumFloat(factors, options.nesterov, gradient,
                                  static_cast<const float*>(matrix.momentum) + begin, size, run, u);
  }
  StoreRun(streamed, run, bytes,
           static_cast<char*>(matrix.new_momentum) + begin * SizeOf(options.momentum_type));
  return finite;
}

DMUON_VECTOR_CLONES
void NormalizeRun(const NormalizeFactors& factors, const float* values, int64_t size, float* to) {
  const float prescale = factors.prescale;
  const float divisor = factors.divisor;
  for (int64_t i = 0; i < size; ++i) {
    to[i] = values[i] * prescale / divisor;
  }
}

bool UpdateRun(const MuonFactors& factors, const float* master, const float* direction,
               int64_t size, bool streamed, float* new_master) {
  if (!streamed) {
    return ComputeUpdate(factors, master, direction, size, new_master);
  }
  alignas(64) float run[kRunElements];
  const bool finite = ComputeUpdate(factors, master, direction, size, run);
  StoreRun(streamed, run, size * static_cast<int64_t>(sizeof(float)), new_master);
  return finite;
}

}  // namespace dmuon::kernels
