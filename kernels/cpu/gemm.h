// Single-threaded matrix products on the CPU, through oneDNN.
#pragma once

#include <cstdint>

namespace dmuon::kernels {

// A row-major operand: `rows` x `cols` after the optional transposition, leading dimension in
// elements.
template <typename T>
struct GemmOperand {
  const T* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
};

// c[m x n, ldc] = left[m x k] * right[k x n] in fp32. The bits depend on the arguments' values,
// sizes and leading dimensions only. Throws std::runtime_error if oneDNN fails.
void Gemm(int64_t m, int64_t n, int64_t k, const GemmOperand<float>& left,
          const GemmOperand<float>& right, float* c, int64_t ldc);

}  // namespace dmuon::kernels
