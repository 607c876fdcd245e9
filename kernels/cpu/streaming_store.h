// Stores that go around the caches: for results so large that no reader would find them there. They
// save the read of each line that an ordinary store begins with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

// A sanitizer sees memcpy, but not these.
#if defined(__SSE2__) && !defined(DMUON_SANITIZED)
#define DMUON_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace dmuon::kernels {

// Results from this size on are streamed; smaller ones may stay in a last-level cache until read.
inline constexpr int64_t kStreamedBytes = 16LL << 20;

// Elements that a kernel computes into local memory before they are stored: few enough to stay in
// the first-level cache, several arrays together.
inline constexpr int64_t kRunElements = 512;

#if defined(DMUON_STREAMING_STORES)

// Copies `bytes` to `to`; `streamed`: around the caches, for other threads only after FinishStores.
inline void StoreRun(bool streamed, const void* from, int64_t bytes, void* to) {
  constexpr int64_t kWidth = sizeof(__m128i);
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  if (!streamed) {
    std::memcpy(target, source, bytes);
    return;
  }
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target) % kWidth);
  const int64_t head = std::min(bytes, (kWidth - misplaced) % kWidth);
  std::memcpy(target, source, head);
  int64_t i = head;
  for (; i + kWidth <= bytes; i += kWidth) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
  }
  std::memcpy(target + i, source + i, bytes - i);
}

// Ends an iteration that has streamed.
inline void FinishStores() { _mm_sfence(); }

#else

inline void StoreRun(bool, const void* from, int64_t bytes, void* to) {
  std::memcpy(to, from, bytes);
}
inline void FinishStores() {}

#endif

}  // namespace dmuon::kernels
