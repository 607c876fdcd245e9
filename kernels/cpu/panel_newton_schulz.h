// Newton-Schulz on the CPU in fp32 panels: fp32 storage, and narrower ones by rounding, where the
// processor cannot multiply them as they are.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/execution.h"
#include "kernels/newton_schulz.h"

namespace dmuon::kernels {

// `count` m x n matrices, m <= n.
class PanelNewtonSchulz final : private NewtonSchulzOperations {
 public:
  using Runner = PanelRunner;
  static Runner MakeRunner(ThreadPool& pool) { return PanelRunner(pool); }
  static void UseTiles(const MuonExecution& execution, Runner& runner) {
    runner.UseTiles({execution.symmetric_tile / kBlockSide, execution.product_tile / kBlockSide});
  }

  // Takes its memory from `workspace`: up to BytesPerMatrix for each matrix.
  PanelNewtonSchulz(PanelRunner& runner, Workspace& workspace, Form form,
                    const NewtonSchulzStorage& storage, int64_t m, int64_t n, int64_t count);

  static int64_t BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                int64_t n);

  // fp32 room for the batch, m * n elements a matrix, that is free until Run.
  float* spare() const { return next_x_.data; }

  // Puts a block of the input, normalised and row-major, in its place at (row, col), multiples of
  // kBlockSide; rows x cols of it belong to the matrix, the rest is zero. Consumes the block.
  // Blocks may be stored by several threads.
  void StoreX(int64_t matrix, int64_t row, int64_t col, int64_t rows, int64_t cols,
              float* block) const;

  // Consumes x; `options.form` is the constructor's. The same bits for any count, position in the
  // batch and number of threads.
  void Run(const NewtonSchulzOptions& options);

  // The result at (row, col), multiples of kBlockSide, in rows of result_ld(), up to the ends of
  // the block.
  const float* Result(int64_t matrix, int64_t row, int64_t col) const {
    return x_.Block(matrix, row / kBlockSide, col / kBlockSide);
  }
  int64_t result_ld() const { return kBlockSide; }

 private:
  static constexpr int kMaxSquares = 5;

  void GramOfX(int out) override;
  void Multiply(const SymmetricProduct& product) override;
  void AddIdentity(int z, double a, int out) override;
  void ApplyToX(int left, double factor, bool last) override;

  PanelRunner& runner_;
  NewtonSchulzStorage storage_;
  int64_t m_;
  int64_t count_;
  PanelMatrix x_;
  PanelMatrix next_x_;
  PanelMatrix transposed_x_;  // of the current X: the right operand of XX^T
  std::array<PanelMatrix, kMaxSquares> squares_;
};

}  // namespace dmuon::kernels
