// Newton-Schulz on a batch of normalised matrices that are at least as wide as high.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/options.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// How the storage of an iteration is rounded. fp16 exists for measurements only.
struct StorageRounding {
  Rounding x = Rounding::kNone;
  Rounding gram = Rounding::kNone;  // A and B of the direct form; R, Z and Q of the Gram form
};

StorageRounding StorageRoundingOf(const NewtonSchulzOptions& options);

// Scratch bytes that one matrix needs, besides its X, and what each thread needs.
int64_t NewtonSchulzBytesPerMatrix(const NewtonSchulzOptions& options, int64_t m, int64_t n);
int64_t NewtonSchulzBytesPerThread();

// One batch of `count` contiguous m x n matrices, m <= n.
class NewtonSchulz {
 public:
  // Takes its storage from `workspace`.
  NewtonSchulz(ThreadPool& pool, Workspace& workspace, const NewtonSchulzOptions& options,
               const StorageRounding& storage, int64_t m, int64_t n, int64_t count);

  // Room for the batch that is free until Run.
  float* spare() const { return next_x_.data; }

  // x: normalised and rounded to storage.x; overwritten. Returns where the results are, laid out
  // the same way: x or spare(). They are fp32 (the last product is not rounded), the same bits for
  // any count, position in the batch and number of threads.
  float* Run(float* x);

 private:
  BatchedMatrix Wide(float* data) const { return {data, n_, m_ * n_}; }
  BatchedMatrix Square(int index) const { return {squares_[index], m_, m_ * m_}; }
  void RunDirect();
  void RunGram();
  bool RestartsBefore(int iteration) const;
  // out = factor * left * right + addend_factor * addend, all m x m and symmetric.
  void SymmetricProduct(const BatchedMatrix& left, const BatchedMatrix& right, double factor,
                        const BatchedMatrix& addend, double addend_factor,
                        const BatchedMatrix& out);
  // out = X X^T
  void GramOfX(const BatchedMatrix& out);
  // X <- left * X + factor * X; the result of the last product stays fp32.
  void ApplyToX(const BatchedMatrix& left, double factor, bool last);
  // out = z + a I
  void AddIdentity(const BatchedMatrix& z, double a, const BatchedMatrix& out);

  static constexpr int kMaxSquares = 5;

  ThreadPool& pool_;
  const NewtonSchulzOptions& options_;
  StorageRounding storage_;
  int64_t m_;
  int64_t n_;
  int64_t count_;
  float* tiles_;
  BatchedMatrix x_;
  BatchedMatrix next_x_;
  std::array<float*, kMaxSquares> squares_{};
};

}  // namespace dmuon::kernels
