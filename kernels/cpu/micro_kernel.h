// The JIT compiled GEMM of libxsmm for one tile, where the build and the processor have it.
#pragma once

#include <cstdint>
#include <string>

namespace dmuon::kernels {

// c[m x n] = left[m x k] * right[k x n] in fp32, all row-major with the leading dimensions given.
// The operands are used as they lie: no copies. Kernels are made on first use of a shape and kept
// by the library. Returns false, c being undefined then, where there is no such kernel.
bool RunMicroKernel(int64_t m, int64_t n, int64_t k, const float* left, int64_t left_ld,
                    const float* right, int64_t right_ld, float* c, int64_t c_ld);

// Whether there are such kernels at all.
bool HasMicroKernels();
// "libxsmm 1.17"; empty if the build has none.
std::string MicroKernelLibrary();

}  // namespace dmuon::kernels
