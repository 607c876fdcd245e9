// The bucket message: the unit of transfer between trainers and owners on every channel.
//
// Bytes, all little-endian:
//
//     0   header         64 bytes, BucketHeader
//     64  presence       one bit per entry of the bucket, entry e is bit e%8 of byte e/8; set: the
//                        trainer has a gradient for it. Zero-padded to a multiple of 64.
//     ..  payload        the entries at their offsets from the bucket layout (each a multiple of
//     64,
//                        counted from the payload's start); zero-padded to a multiple of 64.
//                        Bytes of absent entries are there but mean nothing. A message none of
//                        whose presence bits is set has no payload at all.
//
// The whole message is a multiple of 64 bytes, so that a transport may count in units of 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dmuon {

inline constexpr int64_t kBucketAlignment = 64;
inline constexpr uint32_t kBucketMagic = 0x42554d44;  // "DMUB"
inline constexpr uint16_t kBucketVersion = 1;

enum class BucketKind : uint8_t {
  kGradient = 1,   // trainer to owner
  kInitial = 2,    // trainer to owner: the parameter values that training starts from
  kPublished = 3,  // owner to trainer
};

inline constexpr uint8_t kBucketFinal = 1;  // flag: no further push of this bucket in this step

struct BucketHeader {
  uint32_t magic = kBucketMagic;
  uint16_t version = kBucketVersion;
  uint8_t kind = 0;
  uint8_t flags = 0;
  uint64_t session = 0;
  uint64_t generation = 0;
  uint32_t bucket = 0;
  uint32_t trainer = 0;
  uint64_t payload_bytes = 0;
  uint32_t entries = 0;
  uint32_t reserved[5] = {};
};
static_assert(sizeof(BucketHeader) == 64);
static_assert(offsetof(BucketHeader, session) == 8);
static_assert(offsetof(BucketHeader, bucket) == 24);
static_assert(offsetof(BucketHeader, payload_bytes) == 32);
static_assert(offsetof(BucketHeader, entries) == 40);

constexpr int64_t RoundUpToAlignment(int64_t bytes) {
  return (bytes + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}
constexpr int64_t PresenceBytes(int64_t entries) { return RoundUpToAlignment((entries + 7) / 8); }
constexpr int64_t BucketMessageBytes(int64_t entries, int64_t payload_bytes) {
  return static_cast<int64_t>(sizeof(BucketHeader)) + PresenceBytes(entries) + payload_bytes;
}

inline bool IsPresent(const std::byte* presence, int64_t entry) {
  return (std::to_integer<unsigned>(presence[entry / 8]) >> (entry % 8) & 1U) != 0;
}
inline void SetPresent(std::byte* presence, int64_t entry) {
  presence[entry / 8] |= static_cast<std::byte>(1U << (entry % 8));
}

}  // namespace dmuon
