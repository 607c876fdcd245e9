#include "kernels/cpu/muon_passes.h"

#include "kernels/cpu/vector_clones.h"
#include "kernels/cpu/vector_stream.h"

namespace dmuon::kernels {
namespace {

// What StoreMomentum leaves in `value` is what the next step will read.
template <bool kStreamed, typename T>
DMUON_ALWAYS_INLINE void StoreMomentum(T& value, float* to) {
  Store<kStreamed>(value, to);
}
template <bool kStreamed>
DMUON_ALWAYS_INLINE void StoreMomentum(float& value, uint16_t* to) {
  ToBFloat16(value, *to);
  value = FloatFromBFloat16(*to);
}
template <bool kStreamed>
DMUON_ALWAYS_INLINE void StoreMomentum(FloatVector& value, uint16_t* to) {
  HalfVector halves;
  ToBFloat16(value, halves);
  Store<kStreamed>(halves, to);
  const WordVector words = __builtin_convertvector(halves, WordVector) << 16;
  std::memcpy(&value, &words, sizeof(value));
}

// u = gradient * g' + momentum * m' (nesterov) or m', from m' as it is stored: one element or
// eight.
template <bool kStreamed, typename T, typename Momentum>
DMUON_ALWAYS_INLINE void MomentumAt(const MuonFactors& f, bool nesterov, const float* gradient,
                                    const Momentum* momentum, Momentum* new_momentum, float* u,
                                    typename FlagsFor<T>::Type& not_finite) {
  T raw;
  T m;
  Load(gradient, raw);
  Load(momentum, m);
  const T g = f.gradient * (f.gradient_factor * raw);
  m = f.momentum * m + g;
  StoreMomentum<kStreamed>(m, new_momentum);
  const T direction = nesterov ? g + f.momentum * m : m;
  std::memcpy(u, &direction, sizeof(direction));
  AddNotFinite(m, not_finite);
}

template <bool kStreamed, typename Momentum>
DMUON_ALWAYS_INLINE bool MomentumOf(const MuonFactors f, bool nesterov, const MuonMatrix& matrix,
                                    int64_t begin, int64_t size, float* u) {
  const float* gradient = matrix.gradient + begin;
  const Momentum* momentum = static_cast<const Momentum*>(matrix.momentum) + begin;
  Momentum* new_momentum = static_cast<Momentum*>(matrix.new_momentum) + begin;
  WordVector vector_flags{};
  uint32_t flags = 0;
  int64_t i = 0;
  for (; i + kVector <= size; i += kVector) {
    MomentumAt<kStreamed, FloatVector>(f, nesterov, gradient + i, momentum + i, new_momentum + i,
                                       u + i, vector_flags);
  }
  for (; i < size; ++i) {
    MomentumAt<false, float>(f, nesterov, gradient + i, momentum + i, new_momentum + i, u + i,
                             flags);
  }
  return !AnySet(vector_flags) && !AnySet(flags);
}

DMUON_VECTOR_CLONES bool MomentumCached(const MuonFactors& f, const MuonOptions& options,
                                        const MuonMatrix& matrix, int64_t begin, int64_t size,
                                        float* u) {
  return options.momentum_type == ElementType::kBFloat16
             ? MomentumOf<false, uint16_t>(f, options.nesterov, matrix, begin, size, u)
             : MomentumOf<false, float>(f, options.nesterov, matrix, begin, size, u);
}

DMUON_VECTOR_CLONES bool MomentumStreamed(const MuonFactors& f, const MuonOptions& options,
                                          const MuonMatrix& matrix, int64_t begin, int64_t size,
                                          float* u) {
  return options.momentum_type == ElementType::kBFloat16
             ? MomentumOf<true, uint16_t>(f, options.nesterov, matrix, begin, size, u)
             : MomentumOf<true, float>(f, options.nesterov, matrix, begin, size, u);
}

template <bool kStreamed>
DMUON_ALWAYS_INLINE bool UpdateOf(const MuonFactors f, const UpdatePiece& piece) {
  WordVector vector_flags{};
  uint32_t flags = 0;
  for (int64_t row = 0; row < piece.rows; ++row) {
    const float* master = piece.master + row * piece.ld;
    float* to = piece.new_master + row * piece.ld;
    for (int64_t col = 0; col < piece.cols; col += kBlockSide) {
      const float* direction = piece.directions[col / kBlockSide] + row * piece.direction_ld;
      const int64_t size = std::min(kBlockSide, piece.cols - col);
      int64_t j = 0;
      for (; j + kVector <= size; j += kVector) {
        FloatVector p;
        FloatVector o;
        std::memcpy(&p, master + col + j, sizeof(p));
        AskFor(master + piece.ld + col + j);  // the next row
        Load(direction + j, o);
        const FloatVector next = f.decay * p - f.step * o;
        Store<kStreamed>(next, to + col + j);
        AddNotFinite(next, vector_flags);
      }
      for (; j < size; ++j) {
        to[col + j] = f.decay * master[col + j] - f.step * direction[j];
        AddNotFinite(to[col + j], flags);
      }
    }
  }
  return !AnySet(vector_flags) && !AnySet(flags);
}

DMUON_VECTOR_CLONES bool UpdateCached(const MuonFactors& f, const UpdatePiece& piece) {
  return UpdateOf<false>(f, piece);
}

DMUON_VECTOR_CLONES bool UpdateStreamed(const MuonFactors& f, const UpdatePiece& piece) {
  return UpdateOf<true>(f, piece);
}

}  // namespace

bool MomentumElements(const MuonFactors& factors, const MuonOptions& options,
                      const MuonMatrix& matrix, int64_t begin, int64_t size, bool streamed,
                      float* u) {
  const char* to =
      static_cast<const char*>(matrix.new_momentum) + begin * SizeOf(options.momentum_type);
  const auto run = streamed && CanStream(to) ? MomentumStreamed : MomentumCached;
  return run(factors, options, matrix, begin, size, u);
}

DMUON_VECTOR_CLONES
void NormalizeElements(const NormalizeFactors& factors, const float* from, int64_t ld, int64_t rows,
                       int64_t cols, float* blocks) {
  const float prescale = factors.prescale;
  const float divisor = factors.divisor;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; col += kBlockSide) {
      const float* source = from + row * ld + col;
      float* to = blocks + col * kBlockSide + row * kBlockSide;
      const int64_t size = std::min(kBlockSide, cols - col);
      int64_t j = 0;
      for (; j + kVector <= size; j += kVector) {
        FloatVector value;
        std::memcpy(&value, source + j, sizeof(value));
        AskFor(source + ld + j);  // the next row
        value = value * prescale / divisor;
        std::memcpy(to + j, &value, sizeof(value));
      }
      for (; j < size; ++j) {
        to[j] = source[j] * prescale / divisor;
      }
    }
  }
}

bool UpdateElements(const MuonFactors& factors, const UpdatePiece& piece, bool streamed) {
  const bool aligned = CanStream(piece.new_master) && piece.ld % 4 == 0;
  return streamed && aligned ? UpdateStreamed(factors, piece) : UpdateCached(factors, piece);
}

}  // namespace dmuon::kernels
