// Newton-Schulz on the CPU: a batch of normalised matrices that are at least as wide as high.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/newton_schulz.h"

namespace dmuon::kernels {

// Elements from one row to the next. Rows a multiple of 512 bytes apart fall into the same few
// cache sets, and copying a tile's columns then misses on every one.
constexpr int64_t LeadingDimension(int64_t cols) { return cols % 128 == 0 ? cols + 32 : cols; }

// `count` m x n matrices, m <= n.
class BatchNewtonSchulz final : private NewtonSchulzOperations {
 public:
  // Takes its memory from `workspace`: up to BytesPerMatrix for each matrix.
  BatchNewtonSchulz(TileRunner& runner, Workspace& workspace, Form form,
                    const NewtonSchulzStorage& storage, int64_t m, int64_t n, int64_t count);

  static int64_t BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                int64_t n);

  // Where the input goes: normalised, of type storage.x. The result lies in the same rows.
  const BatchedMatrix& x() const { return x_; }
  // Where the input's transpose goes as well, n x m; data is null if it is not wanted.
  const BatchedMatrix& transposed_x() const { return transposed_x_; }
  // fp32 room for the batch that is free until Run.
  float* spare() const { return static_cast<float*>(result_.data); }

  // Consumes x; `options.form` is the constructor's. Returns the results in fp32:
  // the same bits for any count, position in the batch and number of threads.
  const float* Run(const NewtonSchulzOptions& options);

 private:
  static constexpr int kMaxSquares = 5;

  void GramOfX(int out) override;
  void Multiply(const SymmetricProduct& product) override;
  void AddIdentity(int z, double a, int out) override;
  void ApplyToX(int left, double factor, bool last) override;

  TileRunner& runner_;
  int64_t m_;
  int64_t n_;
  int64_t count_;
  BatchedMatrix result_;  // fp32
  BatchedMatrix x_;
  BatchedMatrix next_x_;        // result_ if X is fp32
  BatchedMatrix transposed_x_;  // of the current X, if it is fp32: the right operand of XX^T
  std::array<BatchedMatrix, kMaxSquares> squares_;
};

}  // namespace dmuon::kernels
