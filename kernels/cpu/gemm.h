// Single-threaded products of small tiles on the CPU, through libxsmm and oneDNN.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/workspace.h"
#include "kernels/options.h"

namespace dmuon::kernels {

// Row-major, leading dimension in elements; used as its transpose if `transposed`.
struct GemmOperand {
  const void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t ld = 0;
  bool transposed = false;
};

// oneDNN's matmul primitive with fp32 results, for one thread. Primitives are made on first use of
// a shape and kept.
class MatmulPrimitives {
 public:
  MatmulPrimitives();
  ~MatmulPrimitives();
  MatmulPrimitives(MatmulPrimitives&&) noexcept;
  MatmulPrimitives& operator=(MatmulPrimitives&&) noexcept;

  // c[m x n, ldc] = left[m x k] * right[k x n]; both operands of one type, fp32 or bf16. Throws
  // std::runtime_error if oneDNN has no such product here.
  void Run(int64_t m, int64_t n, int64_t k, const GemmOperand& left, const GemmOperand& right,
           float* c, int64_t ldc);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether products of bf16 operands run in hardware: the processor has them and oneDNN uses them.
bool NativeBFloat16Works();

// "oneDNN 2.6.3"
std::string OneDnnVersion();

// One thread's products. fp32 accumulation throughout. fp32 operands that are not transposed go to
// RunMicroKernel where there is one, else to oneDNN; bf16 operands go to the hardware where it is
// native; otherwise (and when the other operand is fp32, and for fp16) they are converted to fp32,
// exactly, in pieces of kDepthPiece. The bits depend on values, types, sizes and leading dimensions
// only.
class Gemm {
 public:
  static constexpr int64_t kMaxSide = 256;  // of m and n
  static constexpr int64_t kDepthPiece = 1024;

  explicit Gemm(bool native_bf16);

  void Run(int64_t m, int64_t n, int64_t k, const GemmOperand& left, const GemmOperand& right,
           float* c, int64_t ldc);

 private:
  void RunConverted(int64_t m, int64_t n, int64_t k, const GemmOperand& left,
                    const GemmOperand& right, float* c, int64_t ldc);

  bool native_bf16_;
  MatmulPrimitives native_;
  AlignedBytes left_piece_;  // not touched before it is needed
  AlignedBytes right_piece_;
};

}  // namespace dmuon::kernels
