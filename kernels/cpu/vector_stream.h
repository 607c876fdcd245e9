// Streams of elements, eight at a time: loads that ask for what comes next, conversions, and stores
// that may go around the caches. For use inside functions marked DMUON_VECTOR_CLONES, which give
// them the processor's vectors; the same bits as element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/streaming_store.h"
#include "kernels/half_types.h"

#define DMUON_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace dmuon::kernels {

inline constexpr int64_t kVector = 8;

using FloatVector __attribute__((vector_size(kVector * sizeof(float)))) = float;
using WordVector __attribute__((vector_size(kVector * sizeof(uint32_t)))) = uint32_t;
using HalfVector __attribute__((vector_size(kVector * sizeof(uint16_t)))) = uint16_t;

// Bytes between what is read and what is asked for: about what memory delivers while it answers.
// Measured; asking beyond an array's end does no harm.
inline constexpr int64_t kAhead = 1024;

template <typename T>
DMUON_ALWAYS_INLINE void AskFor(const T* from) {
  __builtin_prefetch(from, 0, 0);
}
template <typename T>
DMUON_ALWAYS_INLINE void AskAhead(const T* from) {
  AskFor(reinterpret_cast<const char*>(from) + kAhead);
}

DMUON_ALWAYS_INLINE void Load(const float* from, float& to) { to = *from; }
DMUON_ALWAYS_INLINE void Load(const uint16_t* from, float& to) { to = FloatFromBFloat16(*from); }
DMUON_ALWAYS_INLINE void Load(const float* from, FloatVector& to) {
  std::memcpy(&to, from, sizeof(to));
  AskAhead(from);
}
// bf16
DMUON_ALWAYS_INLINE void Load(const uint16_t* from, FloatVector& to) {
  HalfVector halves;
  std::memcpy(&halves, from, sizeof(halves));
  const WordVector words = __builtin_convertvector(halves, WordVector) << 16;
  std::memcpy(&to, &words, sizeof(to));
  AskAhead(from);
}

// All bits where a comparison holds.
template <typename Comparison>
DMUON_ALWAYS_INLINE void ToMask(const Comparison& comparison, WordVector& mask) {
  static_assert(sizeof(comparison) == sizeof(mask));
  std::memcpy(&mask, &comparison, sizeof(mask));
}

// The bits of bf16, to nearest even; NaN stays NaN.
DMUON_ALWAYS_INLINE void ToBFloat16(float value, uint16_t& to) { to = BFloat16FromFloat(value); }
DMUON_ALWAYS_INLINE void ToBFloat16(const FloatVector& value, HalfVector& to) {
  WordVector bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const WordVector rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const WordVector quiet_nan = (bits >> 16) | 0x40U;
  WordVector is_nan;
  ToMask((bits & 0x7fffffffU) > 0x7f800000U, is_nan);
  to = __builtin_convertvector((quiet_nan & is_nan) | (rounded & ~is_nan), HalfVector);
}

// The bits of fp16, as Float16FromFloat gives them.
DMUON_ALWAYS_INLINE void ToFloat16(float value, uint16_t& to) { to = Float16FromFloat(value); }
DMUON_ALWAYS_INLINE void ToFloat16(const FloatVector& value, HalfVector& to) {
  using Ints __attribute__((vector_size(sizeof(FloatVector)))) = int32_t;
  constexpr int32_t kInfinite = 0x47800000;
  constexpr int32_t kSmallest = 0x38800000;
  Ints bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const Ints magnitude = bits & 0x7fffffff;
  const Ints clamped = magnitude < kInfinite ? magnitude : Ints{} + kInfinite;
  const Ints own_exponent = clamped & 0x7f800000;
  const Ints exponent = own_exponent > kSmallest ? own_exponent : Ints{} + kSmallest;
  const Ints magic = exponent + (13 << 23);
  FloatVector sum;
  FloatVector offset;
  std::memcpy(&sum, &clamped, sizeof(sum));
  std::memcpy(&offset, &magic, sizeof(offset));
  sum += offset;
  Ints rounded;
  std::memcpy(&rounded, &sum, sizeof(rounded));
  rounded = rounded - magic + ((exponent - kSmallest) >> 13);
  const Ints quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);
  const Ints result = magnitude > 0x7f800000 ? quiet_nan : rounded;
  to = __builtin_convertvector(((bits >> 16) & 0x8000) | result, HalfVector);
}

DMUON_ALWAYS_INLINE void SquareRoot(float value, float& root) { root = std::sqrt(value); }
DMUON_ALWAYS_INLINE void SquareRoot(const FloatVector& value, FloatVector& root) {
  float lanes[kVector];
  std::memcpy(lanes, &value, sizeof(lanes));
  for (float& lane : lanes) {
    lane = std::sqrt(lane);
  }
  std::memcpy(&root, lanes, sizeof(root));
}

// Sets bits in `flags` where a value is NaN or infinite.
DMUON_ALWAYS_INLINE void AddNotFinite(float value, uint32_t& flags) { flags |= NotFinite(value); }
DMUON_ALWAYS_INLINE void AddNotFinite(const FloatVector& value, WordVector& flags) {
  WordVector bits;
  std::memcpy(&bits, &value, sizeof(bits));
  WordVector is_not_finite;
  ToMask((bits & 0x7f800000U) == 0x7f800000U, is_not_finite);
  flags |= is_not_finite;
}

DMUON_ALWAYS_INLINE bool AnySet(uint32_t flags) { return flags != 0; }
DMUON_ALWAYS_INLINE bool AnySet(const WordVector& flags) {
  uint32_t any = 0;
  for (int64_t i = 0; i < kVector; ++i) {
    any |= flags[i];
  }
  return any != 0;
}

// The type of flags that goes with values of type T.
template <typename T>
struct FlagsFor {
  using Type = uint32_t;
};
template <>
struct FlagsFor<FloatVector> {
  using Type = WordVector;
};

// Whether stores to `to` can go around the caches.
inline bool CanStream(const void* to) { return reinterpret_cast<uintptr_t>(to) % 16 == 0; }

template <bool kStreamed, typename T, typename Element>
DMUON_ALWAYS_INLINE void Store(const T& value, Element* to) {
#if defined(DMUON_STREAMING_STORES)
  if constexpr (kStreamed && sizeof(T) >= sizeof(__m128i)) {
    __m128i parts[sizeof(T) / sizeof(__m128i)];
    std::memcpy(parts, &value, sizeof(T));
    for (std::size_t i = 0; i < sizeof(T) / sizeof(__m128i); ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, parts[i]);
    }
    return;
  }
#endif
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace dmuon::kernels
