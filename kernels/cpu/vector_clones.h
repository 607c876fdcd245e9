// Wider vectors where the processor has them, from one source.
#pragma once

#include <cstdint>  // defines __GLIBC__

// Before a function with loops over elements: it is compiled for AVX2 too, and the processor's
// version is chosen when the program is loaded. Same bits: wider vectors do the same operations,
// and no fused multiply-adds (AVX2 alone has none). What the loops call must be inlined to gain.
// Sanitizers are not ready when that choice is made.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(DMUON_SANITIZED)
#define DMUON_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define DMUON_VECTOR_CLONES
#endif
