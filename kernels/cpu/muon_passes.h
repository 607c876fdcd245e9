// The passes over the elements of a Muon step, before and after the iteration: each reads its
// inputs once and writes its outputs once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/transpose.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// A run of up to kRunElements elements from `begin` on: u and momentum', the latter as it is
// stored. Returns whether momentum' is finite.
bool MomentumRun(const MuonFactors& factors, const MuonOptions& options, const MuonMatrix& matrix,
                 int64_t begin, int64_t size, bool streamed, float* u);

// to[i] = values[i] * prescale / divisor
void NormalizeRun(const NormalizeFactors& factors, const float* values, int64_t size, float* to);

// p' of `size` elements in a row, at most kRunElements. Returns whether all of it is finite.
bool UpdateRun(const MuonFactors& factors, const float* master, const float* direction,
               int64_t size, bool streamed, float* new_master);

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

  // Items of a matrix in each pass: blocks of elements, tiles of X, strips of rows.
  int64_t blocks() const { return NormBlocks(rows_ * cols_); }
  int64_t tiles() const { return TilesAlong(m(), kTile) * TilesAlong(n(), kTile); }
  int64_t strips() const { return TilesAlong(rows_, kStrip); }

  // u and momentum' of all matrices, and the squared sums of u's blocks.
  void ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums, uint8_t* bad) const;
  // X of all matrices: u over its norm, transposed if it is higher than wide.
  void Normalize(const float* u, const double* sums, int64_t count, const Iteration& iteration,
                 uint8_t* bad) const;
  // p' of all matrices.
  void Update(std::span<const MuonMatrix> part, const Iteration& iteration, uint8_t* bad) const;

 private:
  static constexpr int64_t kTile = 64;        // X is written in tiles of this side
  static constexpr int64_t kStrip = 32;       // p' is written in strips of so many rows ...
  static constexpr int64_t kStripCols = 128;  // ... and columns at a time

  bool transposed() const { return rows_ > cols_; }
  bool MomentumBlock(const MuonMatrix& matrix, int64_t begin, float* u, double* sum) const;
  void NormalizeTile(const NormalizeFactors& factors, const float* u, int64_t row, int64_t col,
                     const Iteration& iteration, int64_t matrix) const;
  // The piece of the result in rows of kStripCols, turned as the parameter lies.
  void LoadResult(const Iteration& iteration, int64_t matrix, int64_t row, int64_t col,
                  int64_t height, int64_t width, float* to) const;
  bool UpdateStrip(const MuonMatrix& matrix, const Iteration& iteration, int64_t index,
                   int64_t row) const;

  ThreadPool& pool_;
  const MuonOptions& options_;
  const MuonFactors& factors_;
  int64_t rows_;
  int64_t cols_;
  bool streamed_;
};

template <typename Iteration>
bool MuonPasses<Iteration>::MomentumBlock(const MuonMatrix& matrix, int64_t begin, float* u,
                                          double* sum) const {
  const int64_t end = std::min(begin + kNormBlock, rows_ * cols_);
  bool finite = true;
  for (int64_t i = begin; i < end; i += kRunElements) {
    finite &= MomentumRun(factors_, options_, matrix, i, std::min(kRunElements, end - i), streamed_,
                          u + i);
  }
  *sum = SquaredSum(u + begin, end - begin);
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

// The tile of X at (row, col), and of its transpose where that is wanted.
template <typename Iteration>
void MuonPasses<Iteration>::NormalizeTile(const NormalizeFactors& factors, const float* u,
                                          int64_t row, int64_t col, const Iteration& iteration,
                                          int64_t matrix) const {
  const int64_t height = std::min(kTile, m() - row);
  const int64_t width = std::min(kTile, n() - col);
  float as_stored[kTile * kTile];  // as in u
  float turned[kTile * kTile];
  const float* from = transposed() ? u + col * cols_ + row : u + row * cols_ + col;
  const int64_t rows = transposed() ? width : height;
  const int64_t cols = transposed() ? height : width;
  for (int64_t i = 0; i < rows; ++i) {
    NormalizeRun(factors, from + i * cols_, cols, as_stored + i * kTile);
  }
  if (transposed() || iteration.wants_transpose()) {
    Transpose(as_stored, kTile, rows, cols, turned, kTile);
  }
  iteration.StoreX(matrix, row, col, height, width, transposed() ? turned : as_stored,
                   transposed() ? as_stored : turned, kTile);
}

template <typename Iteration>
void MuonPasses<Iteration>::Normalize(const float* u, const double* sums, int64_t count,
                                      const Iteration& iteration, uint8_t* bad) const {
  const int64_t across = TilesAlong(n(), kTile);
  pool_.ParallelFor(count * tiles(), [&](int64_t index, int) {
    const int64_t matrix = index / tiles();
    const int64_t tile = index % tiles();
    double squared_sum = 0.0;
    for (int64_t block = 0; block < blocks(); ++block) {
      squared_sum += sums[matrix * blocks() + block];
    }
    bad[index] = !std::isfinite(squared_sum);
    const NormalizeFactors factors = NormalizeFactorsOf(
        options_.newton_schulz.normalize, options_.newton_schulz.eps, std::sqrt(squared_sum));
    NormalizeTile(factors, u + matrix * rows_ * cols_, tile / across * kTile, tile % across * kTile,
                  iteration, matrix);
    FinishStores();
  });
}

template <typename Iteration>
void MuonPasses<Iteration>::LoadResult(const Iteration& iteration, int64_t matrix, int64_t row,
                                       int64_t col, int64_t height, int64_t width,
                                       float* to) const {
  const int64_t ld = iteration.result_ld();
  for (int64_t done = 0; done < width; done += kStrip) {
    const int64_t count = std::min(kStrip, width - done);
    if (transposed()) {
      Transpose(iteration.Result(matrix, col + done, row), ld, count, height, to + done,
                kStripCols);
      continue;
    }
    const float* from = iteration.Result(matrix, row, col + done);
    for (int64_t i = 0; i < height; ++i) {
      std::copy_n(from + i * ld, count, to + i * kStripCols + done);
    }
  }
}

// p' of kStrip rows from `row` on. Returns whether it is finite.
template <typename Iteration>
bool MuonPasses<Iteration>::UpdateStrip(const MuonMatrix& matrix, const Iteration& iteration,
                                        int64_t index, int64_t row) const {
  const int64_t height = std::min(kStrip, rows_ - row);
  float direction[kStrip * kStripCols];
  bool finite = true;
  for (int64_t col = 0; col < cols_; col += kStripCols) {
    const int64_t width = std::min(kStripCols, cols_ - col);
    LoadResult(iteration, index, row, col, height, width, direction);
    for (int64_t i = 0; i < height; ++i) {
      const int64_t first = (row + i) * cols_ + col;
      finite &= UpdateRun(factors_, matrix.master + first, direction + i * kStripCols, width,
                          streamed_, matrix.new_master + first);
    }
  }
  return finite;
}

template <typename Iteration>
void MuonPasses<Iteration>::Update(std::span<const MuonMatrix> part, const Iteration& iteration,
                                   uint8_t* bad) const {
  pool_.ParallelFor(std::ssize(part) * strips(), [&](int64_t index, int) {
    const int64_t matrix = index / strips();
    bad[index] = !UpdateStrip(part[matrix], iteration, matrix, index % strips() * kStrip);
    FinishStores();
  });
}

}  // namespace dmuon::kernels
