// Newton-Schulz on the CPU in plain rows of the storage type, where the processor multiplies it as
// it is: bf16 in hardware.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/execution.h"
#include "kernels/newton_schulz.h"

namespace dmuon::kernels {

// Elements from one row to the next. Rows a multiple of 512 bytes apart fall into the same few
// cache sets, and copying a tile's columns then misses on every one.
constexpr int64_t LeadingDimension(int64_t cols) { return cols % 128 == 0 ? cols + 32 : cols; }

// `count` m x n matrices, m <= n.
class BatchNewtonSchulz final : private NewtonSchulzOperations {
 public:
  using Runner = TileRunner;
  static Runner MakeRunner(ThreadPool& pool) { return TileRunner(pool, /*native_bf16=*/true); }
  static void UseTiles(const MuonExecution& execution, Runner& runner) {
    runner.UseTiles({execution.symmetric_tile, execution.product_tile});
  }

  // Takes its memory from `workspace`: up to BytesPerMatrix for each matrix.
  BatchNewtonSchulz(TileRunner& runner, Workspace& workspace, Form form,
                    const NewtonSchulzStorage& storage, int64_t m, int64_t n, int64_t count);

  static int64_t BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                int64_t n);

  // fp32 room for the batch, m * n elements a matrix, that is free until Run.
  float* spare() const { return static_cast<float*>(result_.data); }

  // Puts a block of the input, normalised and row-major, in its place at (row, col), multiples of
  // kBlockSide; rows x cols of it belong to the matrix, the rest is zero. Consumes the block.
  // Blocks may be stored by several threads.
  void StoreX(int64_t matrix, int64_t row, int64_t col, int64_t rows, int64_t cols,
              float* block) const;

  // Consumes x; `options.form` is the constructor's. The same bits for any count, position in the
  // batch and number of threads.
  void Run(const NewtonSchulzOptions& options);

  // The result at (row, col), in rows of result_ld().
  const float* Result(int64_t matrix, int64_t row, int64_t col) const {
    return static_cast<const float*>(x_.data) + matrix * x_.stride + row * x_.ld + col;
  }
  int64_t result_ld() const { return x_.ld; }

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
