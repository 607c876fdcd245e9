// bf16 and fp16 as bits, and finiteness of fp32: rounding to nearest even, NaN stays NaN. Usable on
// host and CUDA device.
#pragma once

#include <bit>
#include <cstdint>

namespace dmuon::kernels {

// 1 for NaN and infinities, else 0. Unlike a branch it can be accumulated with | in a vector loop.
constexpr uint32_t NotFinite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
}

constexpr uint16_t BFloat16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

constexpr float FloatFromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr float RoundToBFloat16(float value) { return FloatFromBFloat16(BFloat16FromFloat(value)); }

constexpr uint16_t Float16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  uint32_t result = 0;
  if (magnitude > 0x7f800000U) {  // NaN: keep it quiet, with what payload fits
    result = 0x7e00U | ((magnitude >> 13) & 0x1ffU);
  } else if (magnitude >= 0x47800000U) {  // 2^16 and above
    result = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal: rebias; a carry out of 65504 gives infinity
    result = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else if (magnitude > 0x33000000U) {  // subnormal: multiples of 2^-24
    const uint32_t exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const uint32_t shift = 126U - exponent;
    const uint32_t half = 1U << (shift - 1U);
    result = (mantissa + half - 1U + ((mantissa >> shift) & 1U)) >> shift;
  }
  return static_cast<uint16_t>(sign | result);
}

constexpr float FloatFromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

}  // namespace dmuon::kernels
