#include "kernels/cpu/panel_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/block_kernel.h"
#include "kernels/cpu/block_operations.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

// The piece of the inner dimension that all blocks of a tile go through before the next, in blocks:
// what a tile needs of the operands stays in the second-level cache. Measured (kernels/README.md).
constexpr int64_t kDepthBlocks = 6;

// One tile of one matrix.
class TileProduct {
 public:
  TileProduct(const PanelProduct& product, const BlockKernel& kernel, int64_t matrix,
              const BlockTile& tile, float* sums)
      : product_(product), kernel_(kernel), matrix_(matrix), tile_(tile), sums_(sums) {}

  void Run() const {
    const int64_t depth = product_.right.block_rows;
    for (int64_t begin = 0; begin < depth; begin += kDepthBlocks) {
      Multiply(begin, std::min(kDepthBlocks, depth - begin));
    }
    for (int64_t j = tile_.col; j < tile_.col + tile_.cols; ++j) {
      for (int64_t i = FirstRow(j); i < tile_.row + tile_.rows; ++i) {
        Finish(i, j);
      }
    }
  }

 private:
  // Of a symmetric result only blocks on and below the diagonal are computed.
  int64_t FirstRow(int64_t col) const {
    return product_.symmetric ? std::max(tile_.row, col) : tile_.row;
  }

  // Whether the sums are the result.
  bool IsPlain() const {
    return product_.addend.data == nullptr && product_.product_factor == 1.0F;
  }

  float* Sums(int64_t row, int64_t col) const {
    return IsPlain() ? product_.out.Block(matrix_, row, col)
                     : sums_ + ((col - tile_.col) * tile_.rows + row - tile_.row) * kBlockElements;
  }

  // A piece of the inner dimension, in blocks.
  void Multiply(int64_t begin, int64_t depth) const {
    for (int64_t j = tile_.col; j < tile_.col + tile_.cols; ++j) {
      const float* right = product_.right.Block(matrix_, begin, j);
      for (int64_t i = FirstRow(j); i < tile_.row + tile_.rows; ++i) {
        kernel_.Run(product_.left.Block(matrix_, i, begin), right, depth, begin > 0, Sums(i, j));
      }
    }
  }

  // Combines a block's sums with the addend and puts it wherever it is wanted.
  void Finish(int64_t row, int64_t col) const {
    float* block = product_.out.Block(matrix_, row, col);
    if (product_.addend.data != nullptr) {
      CombineBlock(product_.product_factor, Sums(row, col), product_.addend_factor,
                   product_.addend.Block(matrix_, row, col), block);
    } else if (!IsPlain()) {
      ScaleBlock(product_.product_factor, Sums(row, col), block);
    }
    RoundRow(product_.rounding, kBlockElements, block);
    if (product_.symmetric && row == col) {
      MirrorBlock(block);
    } else if (product_.symmetric) {
      TransposeBlock(block, product_.out.Block(matrix_, col, row));
    }
    if (product_.transposed_out.data != nullptr) {
      TransposeBlock(block, product_.transposed_out.Block(matrix_, col, row));
    }
  }

  const PanelProduct& product_;
  const BlockKernel& kernel_;
  int64_t matrix_;
  BlockTile tile_;
  float* sums_;
};

int64_t SideOf(const PanelProduct& product, const PanelTiles& tiles) {
  const int64_t asked = product.symmetric ? tiles.symmetric : tiles.general;
  return asked != 0 ? asked : DefaultPanelTile(product.symmetric, product.out.block_rows);
}

}  // namespace

int64_t CountTiles(const PanelProduct& product, int64_t side) {
  const int64_t down = TilesAlong(product.out.block_rows, side);
  return product.symmetric ? TriangleCount(down) : down * TilesAlong(product.out.block_cols, side);
}

BlockTile BlockTileAt(const PanelProduct& product, int64_t side, int64_t index) {
  const int64_t down = TilesAlong(product.out.block_rows, side);
  TileIndex position = {index % down, index / down};
  if (product.symmetric) {
    const int64_t below = TriangleCount(down - 1);
    position = index < below ? TriangleTile(index) : TileIndex{index - below, index - below};
    position.row += index < below ? 1 : 0;
  }
  BlockTile tile = {position.row * side, position.col * side, 0, 0};
  tile.rows = std::min(side, product.out.block_rows - tile.row);
  tile.cols = std::min(side, product.out.block_cols - tile.col);
  return tile;
}

PanelRunner::PanelRunner(ThreadPool& pool) : pool_(pool) {
  constexpr int64_t kBytes =
      kLargestPanelTile * kLargestPanelTile * kBlockElements * static_cast<int64_t>(sizeof(float));
  for (int i = 0; i < pool.threads(); ++i) {
    sums_.push_back(AllocateAligned(kBytes));
    if (pool.threads() > 1) {
      // A thread may get its first tile late: its memory is there from the start.
      std::memset(sums_.back().get(), 0, kBytes);
    }
  }
}

void PanelRunner::Run(const PanelProduct& product, int64_t count) {
  const int64_t side = SideOf(product, tiles_);
  const int64_t per_matrix = CountTiles(product, side);
  const BlockKernel kernel(product.left.panel_stride());
  pool_.ParallelFor(count * per_matrix, [&](int64_t index, int worker) {
    TileProduct(product, kernel, index / per_matrix, BlockTileAt(product, side, index % per_matrix),
                reinterpret_cast<float*>(sums_[worker].get()))
        .Run();
  });
}

}  // namespace dmuon::kernels
