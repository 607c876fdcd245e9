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

// Without a branch, so that loops over it are vectorised. With e the value's exponent, at least
// -14: the sum with 2^(e + 13) rounds to a multiple of 2^(e - 10), the last place of a half, and
// counts these multiples in the sum's last bits. A half is that count plus 1024 per step of e.
constexpr uint16_t Float16FromFloat(float value) {
  constexpr int32_t kInfinite = 0x47800000;  // 2^16: from here on
  constexpr int32_t kSmallest = 0x38800000;  // 2^-14, the smallest normal half
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  const int32_t clamped = magnitude < kInfinite ? magnitude : kInfinite;
  const int32_t own_exponent = clamped & 0x7f800000;
  const int32_t exponent = own_exponent > kSmallest ? own_exponent : kSmallest;
  const int32_t magic = exponent + (13 << 23);
  const float sum = std::bit_cast<float>(clamped) + std::bit_cast<float>(magic);
  const int32_t rounded = std::bit_cast<int32_t>(sum) - magic + ((exponent - kSmallest) >> 13);
  const int32_t quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);  // with what payload fits
  const int32_t result = magnitude > 0x7f800000 ? quiet_nan : rounded;
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(result));
}

constexpr float FloatFromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = bits & 0x7c00U;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffU) << 13;
  uint32_t result = magnitude + (exponent == 0x7c00U ? 0x70000000U : 0x38000000U);
  // Below 2^-14: multiples of 2^-24, the last bit of a half's mantissa.
  const float above_half = std::bit_cast<float>(0x3f000000U | (bits & 0x3ffU));
  result = exponent == 0 ? std::bit_cast<uint32_t>(above_half - 0.5F) : result;
  return std::bit_cast<float>(sign | result);
}

}  // namespace dmuon::kernels
