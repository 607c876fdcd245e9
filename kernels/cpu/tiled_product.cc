#include "kernels/cpu/tiled_product.h"

#include <algorithm>

#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

struct Tile {
  int64_t matrix = 0;
  int64_t row = 0;
  int64_t col = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

int64_t TilesPerMatrix(const TiledProduct& product, int64_t side) {
  return product.symmetric ? TriangleCount(TilesAlong(product.rows, side))
                           : TilesAlong(product.rows, side) * TilesAlong(product.cols, side);
}

Tile TileAt(const TiledProduct& product, int64_t side, int64_t index) {
  const int64_t per_matrix = TilesPerMatrix(product, side);
  const int64_t inside = index % per_matrix;
  const int64_t across = TilesAlong(product.cols, side);
  const TileIndex position =
      product.symmetric ? TriangleTile(inside) : TileIndex{inside / across, inside % across};
  Tile tile;
  tile.matrix = index / per_matrix;
  tile.row = position.row * side;
  tile.col = position.col * side;
  tile.rows = std::min(side, product.rows - tile.row);
  tile.cols = std::min(side, product.cols - tile.col);
  return tile;
}

// Operand of the rows (or, transposed, columns) of the product that start at element `first`.
GemmOperand OperandAt(const BatchedMatrix& batch, int64_t matrix, int64_t first, bool transposed) {
  const int64_t offset = matrix * batch.stride + first;
  return {static_cast<const char*>(batch.data) + offset * SizeOf(batch.type), batch.type, batch.ld,
          transposed};
}

// sums[j] = product_factor * sums[j] + addend_factor * addend[j], along one row of the tile.
void CombineRow(const TiledProduct& product, const Tile& tile, int64_t row, float* sums) {
  const float factor = product.product_factor;
  if (product.addend.data == nullptr) {
    for (int64_t j = 0; j < tile.cols; ++j) {
      sums[j] = factor * sums[j];
    }
    return;
  }
  const BatchedMatrix& addend = product.addend;
  float added[kLargestTile];
  LoadRow(addend.type, addend.data,
          tile.matrix * addend.stride + (tile.row + row) * addend.ld + tile.col, tile.cols, added);
  const float addend_factor = product.addend_factor;
  for (int64_t j = 0; j < tile.cols; ++j) {
    sums[j] = factor * sums[j] + addend_factor * added[j];
  }
}

// Of a tile on the diagonal of a symmetric result only the lower half counts, so that the result is
// exactly symmetric.
void StoreTile(const TiledProduct& product, const Tile& tile, const float* sums) {
  const BatchedMatrix& out = product.out;
  const bool diagonal = product.symmetric && tile.row == tile.col;
  const int64_t base = tile.matrix * out.stride;
  for (int64_t i = 0; i < tile.rows; ++i) {
    StoreRow(out.type, sums + i * kLargestTile, diagonal ? i + 1 : tile.cols, out.data,
             base + (tile.row + i) * out.ld + tile.col);
  }
  if (!product.symmetric) {
    return;
  }
  float column[kLargestTile];
  for (int64_t j = 0; j < tile.cols; ++j) {
    const int64_t first = diagonal ? j + 1 : 0;
    for (int64_t i = first; i < tile.rows; ++i) {
      column[i] = sums[i * kLargestTile + j];
    }
    StoreRow(out.type, column + first, tile.rows - first, out.data,
             base + (tile.col + j) * out.ld + tile.row + first);
  }
}

void RunTile(const TiledProduct& product, const Tile& tile, Gemm& gemm, float* sums) {
  const int64_t right_first = product.right_transposed ? tile.col * product.right.ld : tile.col;
  gemm.Run(tile.rows, tile.cols, product.depth,
           OperandAt(product.left, tile.matrix, tile.row * product.left.ld, false),
           OperandAt(product.right, tile.matrix, right_first, product.right_transposed), sums,
           kLargestTile);
  for (int64_t i = 0; i < tile.rows; ++i) {
    CombineRow(product, tile, i, sums + i * kLargestTile);
  }
  StoreTile(product, tile, sums);
}

}  // namespace

TileRunner::TileRunner(ThreadPool& pool, bool native_bf16) : pool_(pool) {
  workers_.reserve(pool.threads());
  for (int i = 0; i < pool.threads(); ++i) {
    workers_.push_back(
        {Gemm(native_bf16), AllocateAligned(kLargestTile * kLargestTile * sizeof(float))});
  }
}

void TileRunner::Run(const TiledProduct& product, int64_t count) {
  const int64_t side = TileSide(product.left.type, product.symmetric);
  pool_.ParallelFor(count * TilesPerMatrix(product, side), [&](int64_t index, int worker) {
    RunTile(product, TileAt(product, side, index), workers_[worker].gemm,
            reinterpret_cast<float*>(workers_[worker].sums.get()));
  });
}

}  // namespace dmuon::kernels
