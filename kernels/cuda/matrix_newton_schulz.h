// Newton-Schulz of one matrix on a CUDA stream.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/memory.h"
#include "kernels/newton_schulz.h"

namespace dmuon::kernels::cuda {

// One matrix at a time: cuBLAS chooses its algorithm by batch count too, and the bits of a matrix
// must not depend on its batch.
class MatrixNewtonSchulz final : private NewtonSchulzOperations {
 public:
  // Takes its memory, BytesFor, from `workspace`.
  MatrixNewtonSchulz(const Stream& stream, const CublasHandle& cublas, DeviceWorkspace& workspace,
                     Form form, const NewtonSchulzStorage& storage, const Shape& shape);

  static int64_t BytesFor(Form form, const NewtonSchulzStorage& storage, const Shape& shape);

  // Where the input goes: normalised, row-major m x n, of type storage.x. Call before each Run.
  TypedPointer x() const { return x_; }
  // fp32 room for the matrix that is free until Run.
  float* spare() const { return static_cast<float*>(result_.data); }

  // Queues the iteration, which consumes x. Returns where the result will be: row-major m x n,
  // fp32.
  const float* Run(const NewtonSchulzOptions& options);

 private:
  static constexpr int kMaxSquares = 5;

  struct Gemm {
    int64_t cols = 0;  // of the result; its rows are m
    int64_t depth = 0;
    TypedPointer left;
    TypedPointer right;  // same type as left
    bool right_transposed = false;
    float factor = 1.0F;
    float out_factor = 0.0F;  // out = factor * left * right + out_factor * out
    TypedPointer out;
  };

  void GramOfX(int out) override;
  void Multiply(const SymmetricProduct& product) override;
  void AddIdentity(int z, double a, int out) override;
  void ApplyToX(int left, double factor, bool last) override;
  void RunGemm(const Gemm& gemm);

  const Stream& stream_;
  const CublasHandle& cublas_;
  int64_t m_;
  int64_t n_;
  TypedPointer result_;   // fp32
  TypedPointer x_;        // result_ after the last product
  TypedPointer next_x_;   // result_ if X is fp32
  TypedPointer float_x_;  // fp32 copy of X for products with fp32 squares; else null
  std::array<TypedPointer, kMaxSquares> squares_;
};

}  // namespace dmuon::kernels::cuda
