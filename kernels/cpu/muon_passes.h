// The passes over the elements of a Muon step, before and after the iteration: each reads its
// inputs once and writes its outputs once.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/block_operations.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/transpose.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// `size` elements from `begin` on: u and momentum', the latter as it is stored. Returns whether
// momentum' is finite.
bool MomentumElements(const MuonFactors& factors, const MuonOptions& options,
                      const MuonMatrix& matrix, int64_t begin, int64_t size, bool streamed,
                      float* u);

// A piece of a matrix in rows of `ld`, as blocks from left to right: values * prescale / divisor.
// What the last block has beyond the piece is left alone.
void NormalizeElements(const NormalizeFactors& factors, const float* from, int64_t ld, int64_t rows,
                       int64_t cols, float* blocks);

inline constexpr int64_t kUpdateBlocks = 8;

// A piece of a matrix of up to kBlockSide rows and kUpdateBlocks blocks' columns.
struct UpdatePiece {
  int64_t rows = 0;
  int64_t cols = 0;
  const float* master = nullptr;
  float* new_master = nullptr;
  int64_t ld = 0;                                        // of both
  std::array<const float*, kUpdateBlocks> directions{};  // one for each block's columns
  int64_t direction_ld = 0;
};

// p' of a piece. Returns whether all of it is finite.
bool UpdateElements(const MuonFactors& factors, const UpdatePiece& piece, bool streamed);

// The passes of equal matrices of rows x cols; Iteration is BatchNewtonSchulz or PanelNewtonSchulz.
// Flags in `bad` are one byte for each item of a pass, items of one matrix together: set where what
// was written is not finite.
template <typename Iteration>
class MuonPasses {
 public:
  MuonPasses(ThreadPool& pool, const MuonOptions& options, const MuonFactors& factors, int64_t rows,
             int64_t cols)
      : pool_(pool),
        options_(options),
        factors_(factors),
        rows_(rows),
        cols_(cols),
        streamed_(rows * cols * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes) {}

  int64_t m() const { return std::min(rows_, cols_); }
  int64_t n() const { return std::max(rows_, cols_); }

  // Items of a matrix: blocks of elements of the first pass, strips of the others.
  int64_t blocks() const { return NormBlocks(rows_ * cols_); }
  int64_t strips() const { return TilesAlong(rows_, kBlockSide) * TilesAlong(cols_, kStripCols); }

  // u and momentum' of all matrices, and the squared sums of u's blocks.
  void ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums, uint8_t* bad) const;
  // X of all matrices: u over its norm, transposed if it is higher than wide.
  void Normalize(const float* u, const double* sums, int64_t count, const Iteration& iteration,
                 uint8_t* bad) const;
  // p' of all matrices.
  void Update(std::span<const MuonMatrix> part, const Iteration& iteration, uint8_t* bad) const;

 private:
  // A strip has so many columns of kBlockSide rows and is done in pieces.
  static constexpr int64_t kStripCols = 512;
  static constexpr int64_t kPieceCols = kUpdateBlocks * kBlockSide;

  // Where a piece is in its parameter.
  struct Piece {
    int64_t matrix = 0;
    int64_t row = 0;
    int64_t col = 0;
    int64_t rows = 0;
    int64_t cols = 0;
  };

  bool transposed() const { return rows_ > cols_; }
  // Calls body(piece) for the pieces of a strip.
  template <typename Body>
  void ForPieces(int64_t index, Body body) const;
  bool MomentumBlock(const MuonMatrix& matrix, int64_t begin, float* u, double* sum) const;
  void NormalizePiece(const NormalizeFactors& factors, const float* u, const Piece& piece,
                      const Iteration& iteration) const;
  // Returns whether what was written is finite.
  bool UpdatePieceOf(const MuonMatrix& matrix, const Piece& piece,
                     const Iteration& iteration) const;

  ThreadPool& pool_;
  const MuonOptions& options_;
  const MuonFactors& factors_;
  int64_t rows_;
  int64_t cols_;
  bool streamed_;
};

template <typename Iteration>
template <typename Body>
void MuonPasses<Iteration>::ForPieces(int64_t index, Body body) const {
  const int64_t across = TilesAlong(cols_, kStripCols);
  Piece piece;
  piece.matrix = index / strips();
  piece.row = index % strips() / across * kBlockSide;
  piece.rows = std::min(kBlockSide, rows_ - piece.row);
  const int64_t begin = index % across * kStripCols;
  const int64_t end = std::min(begin + kStripCols, cols_);
  for (piece.col = begin; piece.col < end; piece.col += kPieceCols) {
    piece.cols = std::min(kPieceCols, end - piece.col);
    body(piece);
  }
}

template <typename Iteration>
bool MuonPasses<Iteration>::MomentumBlock(const MuonMatrix& matrix, int64_t begin, float* u,
                                          double* sum) const {
  const int64_t end = std::min(begin + kNormBlock, rows_ * cols_);
  alignas(64) float run[kRunElements];
  SquaredSumLanes lanes;
  bool finite = true;
  for (int64_t i = begin; i < end; i += kRunElements) {
    const int64_t size = std::min(kRunElements, end - i);
    finite &= MomentumElements(factors_, options_, matrix, i, size, streamed_, run);
    lanes.Add(run, size);
    StoreRun(streamed_, run, size * static_cast<int64_t>(sizeof(float)), u + i);
  }
  *sum = lanes.Sum();
  return finite;
}

template <typename Iteration>
void MuonPasses<Iteration>::ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums,
                                          uint8_t* bad) const {
  pool_.ParallelFor(std::ssize(part) * blocks(), [&](int64_t index, int) {
    const int64_t matrix = index / blocks();
    bad[index] = !MomentumBlock(part[matrix], index % blocks() * kNormBlock,
                                u + matrix * rows_ * cols_, sums + index);
    FinishStores();
  });
}

template <typename Iteration>
void MuonPasses<Iteration>::NormalizePiece(const NormalizeFactors& factors, const float* u,
                                           const Piece& piece, const Iteration& iteration) const {
  alignas(64) float blocks[kUpdateBlocks * kBlockElements];
  alignas(64) float turned[kBlockElements];
  if (piece.rows < kBlockSide || piece.cols < kPieceCols) {
    std::fill(std::begin(blocks), std::end(blocks), 0.0F);
  }
  NormalizeElements(factors, u + piece.row * cols_ + piece.col, cols_, piece.rows, piece.cols,
                    blocks);
  for (int64_t done = 0; done < piece.cols; done += kBlockSide) {
    float* block = blocks + done * kBlockSide;
    const int64_t cols = std::min(kBlockSide, piece.cols - done);
    if (transposed()) {
      TransposeBlock(block, turned);
      iteration.StoreX(piece.matrix, piece.col + done, piece.row, cols, piece.rows, turned);
    } else {
      iteration.StoreX(piece.matrix, piece.row, piece.col + done, piece.rows, cols, block);
    }
  }
}

template <typename Iteration>
void MuonPasses<Iteration>::Normalize(const float* u, const double* sums, int64_t count,
                                      const Iteration& iteration, uint8_t* bad) const {
  pool_.ParallelFor(count * strips(), [&](int64_t index, int) {
    const int64_t matrix = index / strips();
    double squared_sum = 0.0;
    for (int64_t block = 0; block < blocks(); ++block) {
      squared_sum += sums[matrix * blocks() + block];
    }
    bad[index] = !std::isfinite(squared_sum);
    const NormalizeFactors factors = NormalizeFactorsOf(
        options_.newton_schulz.normalize, options_.newton_schulz.eps, std::sqrt(squared_sum));
    ForPieces(index, [&](const Piece& piece) {
      NormalizePiece(factors, u + matrix * rows_ * cols_, piece, iteration);
    });
    FinishStores();
  });
}

template <typename Iteration>
bool MuonPasses<Iteration>::UpdatePieceOf(const MuonMatrix& matrix, const Piece& piece,
                                          const Iteration& iteration) const {
  alignas(64) float turned[kUpdateBlocks * kBlockElements];
  const int64_t first = piece.row * cols_ + piece.col;
  UpdatePiece update;
  update.rows = piece.rows;
  update.cols = piece.cols;
  update.master = matrix.master + first;
  update.new_master = matrix.new_master + first;
  update.ld = cols_;
  update.direction_ld = transposed() ? kBlockSide : iteration.result_ld();
  for (int64_t done = 0; done < piece.cols; done += kBlockSide) {
    const float*& direction = update.directions[done / kBlockSide];
    if (transposed()) {
      float* block = turned + done * kBlockSide;
      Transpose(iteration.Result(piece.matrix, piece.col + done, piece.row), iteration.result_ld(),
                std::min(kBlockSide, piece.cols - done), piece.rows, block, kBlockSide);
      direction = block;
    } else {
      direction = iteration.Result(piece.matrix, piece.row, piece.col + done);
    }
  }
  return UpdateElements(factors_, update, streamed_);
}

template <typename Iteration>
void MuonPasses<Iteration>::Update(std::span<const MuonMatrix> part, const Iteration& iteration,
                                   uint8_t* bad) const {
  pool_.ParallelFor(std::ssize(part) * strips(), [&](int64_t index, int) {
    bool finite = true;
    ForPieces(index, [&](const Piece& piece) {
      finite &= UpdatePieceOf(part[piece.matrix], piece, iteration);
    });
    bad[index] = !finite;
    FinishStores();
  });
}

}  // namespace dmuon::kernels
