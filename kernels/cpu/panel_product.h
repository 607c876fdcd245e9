// Batched fp32 products of matrices in panels, tile by tile: the arithmetic of Newton-Schulz.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/panel_matrix.h"
#include "kernels/cpu/workspace.h"
#include "kernels/options.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// out = product_factor * (left * right) + addend_factor * addend, summed in fp32 and rounded once
// to `rounding` (kept in fp32 all the same). `out` must not be `left` or `right`; it may be
// `addend`. left.block_cols is right.block_rows; out has left's block rows and right's columns.
struct PanelProduct {
  PanelMatrix left;
  PanelMatrix right;
  bool symmetric = false;  // out is known to be symmetric: one triangle is computed, then mirrored
  float product_factor = 1.0F;
  PanelMatrix addend;
  float addend_factor = 0.0F;
  ElementType rounding = ElementType::kFloat32;
  PanelMatrix out;
  PanelMatrix transposed_out;  // out's transpose as well, if data is not null; not if symmetric
};

// Blocks along the sides of a tile: what one item of work computes; 0: as measured to be good. At
// most kLargestPanelTile. No effect on bits.
struct PanelTiles {
  int64_t symmetric = 0;
  int64_t general = 0;
};

inline constexpr int64_t kLargestPanelTile = 8;

// What is measured to be good, for a result of so many block rows. Few blocks need small tiles, for
// the threads' shares to be even.
constexpr int64_t DefaultPanelTile(bool symmetric, int64_t block_rows) {
  constexpr int64_t kManyBlocks = 16;
  return symmetric && block_rows < kManyBlocks ? 2 : 4;
}

// The tile that a product's index-th item computes, in blocks; the ragged ones are smaller. Tiles
// run down the columns, for those of one column share the right operand's panels; of a symmetric
// result only those that reach below the diagonal, those on it last: they are the small ones, and
// even out the threads' shares.
struct BlockTile {
  int64_t row = 0;
  int64_t col = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};
int64_t CountTiles(const PanelProduct& product, int64_t side);
BlockTile BlockTileAt(const PanelProduct& product, int64_t side, int64_t index);

// Runs products on a pool's threads. The bits of a matrix do not depend on threads, tiles, the
// batch or its place there.
class PanelRunner {
 public:
  explicit PanelRunner(ThreadPool& pool);

  ThreadPool& pool() const { return pool_; }
  // Of the products that follow.
  void UseTiles(const PanelTiles& tiles) { tiles_ = tiles; }
  void Run(const PanelProduct& product, int64_t count);

 private:
  ThreadPool& pool_;
  PanelTiles tiles_;
  std::vector<AlignedBytes> sums_;  // one tile for each thread
};

}  // namespace dmuon::kernels
