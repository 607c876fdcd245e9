#include "kernels/cpu/tiled_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/transpose.h"
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
  // Down the columns: the tiles of one column share the right operand's, the larger one.
  const int64_t down = TilesAlong(product.rows, side);
  const TileIndex position =
      product.symmetric ? TriangleTile(inside) : TileIndex{inside % down, inside / down};
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

// to[j] = product_factor * sums[j] + addend_factor * addend[j], along one row of the tile.
void CombineRow(const TiledProduct& product, const Tile& tile, int64_t row, const float* sums,
                float* to) {
  const float factor = product.product_factor;
  const BatchedMatrix& addend = product.addend;
  if (addend.data == nullptr) {
    for (int64_t j = 0; j < tile.cols; ++j) {
      to[j] = factor * sums[j];
    }
    return;
  }
  const int64_t first = tile.matrix * addend.stride + (tile.row + row) * addend.ld + tile.col;
  float converted[kLargestTile];
  const float* added = converted;
  if (addend.type == ElementType::kFloat32) {
    added = static_cast<const float*>(addend.data) + first;
  } else {
    LoadRow(addend.type, addend.data, first, tile.cols, converted);
  }
  const float addend_factor = product.addend_factor;
  for (int64_t j = 0; j < tile.cols; ++j) {
    to[j] = factor * sums[j] + addend_factor * added[j];
  }
}

// Copies the lower half of a square tile to its upper half: the result is exactly symmetric.
void MirrorHalves(int64_t side, float* values) {
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t j = i + 1; j < side; ++j) {
      values[i * side + j] = values[j * side + i];
    }
  }
}

float* FloatsAt(const BatchedMatrix& batch, const Tile& tile) {
  return static_cast<float*>(batch.data) + tile.matrix * batch.stride + tile.row * batch.ld +
         tile.col;
}

Tile MirrorImage(const Tile& tile) {
  return {tile.matrix, tile.col, tile.row, tile.cols, tile.rows};
}

void StoreRows(const BatchedMatrix& out, const Tile& tile, const float* values) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    StoreRow(out.type, values + i * tile.cols, tile.cols, out.data,
             tile.matrix * out.stride + (tile.row + i) * out.ld + tile.col);
  }
}

// Combines the sums with the addend and stores them wherever they are wanted. `spare` has room for
// a tile.
void FinishTile(const TiledProduct& product, const Tile& tile, float* sums, float* spare) {
  const BatchedMatrix& out = product.out;
  const bool mirrored = product.symmetric && tile.row != tile.col;
  const Tile image = MirrorImage(tile);
  const bool in_place = out.type == ElementType::kFloat32;
  float* to = in_place ? FloatsAt(out, tile) : sums;
  const int64_t ld = in_place ? out.ld : tile.cols;
  for (int64_t i = 0; i < tile.rows; ++i) {
    CombineRow(product, tile, i, sums + i * tile.cols, to + i * ld);
  }
  if (mirrored) {
    Transpose(to, ld, tile.rows, tile.cols, in_place ? FloatsAt(out, image) : spare,
              in_place ? out.ld : tile.rows);
  }
  if (product.transposed_out.data != nullptr) {
    Transpose(to, ld, tile.rows, tile.cols, FloatsAt(product.transposed_out, image),
              product.transposed_out.ld);
  }
  if (!in_place) {
    StoreRows(out, tile, sums);
    if (mirrored) StoreRows(out, image, spare);
  }
}

void MultiplyTile(const TiledProduct& product, const Tile& tile, Gemm& gemm, float* sums,
                  int64_t sums_ld) {
  const int64_t right_first = product.right_transposed ? tile.col * product.right.ld : tile.col;
  gemm.Run(tile.rows, tile.cols, product.depth,
           OperandAt(product.left, tile.matrix, tile.row * product.left.ld, false),
           OperandAt(product.right, tile.matrix, right_first, product.right_transposed), sums,
           sums_ld);
}

// A tile on the diagonal of a symmetric result, in strips: each ends with the diagonal.
void MultiplyDiagonalTile(const TiledProduct& product, const Tile& tile, Gemm& gemm, float* sums) {
  constexpr int64_t kStrip = 32;
  Tile strip = tile;
  for (int64_t first = 0; first < tile.rows; first += kStrip) {
    strip.row = tile.row + first;
    strip.rows = std::min(kStrip, tile.rows - first);
    strip.cols = first + strip.rows;
    MultiplyTile(product, strip, gemm, sums + first * tile.cols, tile.cols);
  }
  MirrorHalves(tile.rows, sums);
}

// Whether the sums are the result.
bool IsPlain(const TiledProduct& product) {
  return !product.symmetric && product.addend.data == nullptr && product.product_factor == 1.0F &&
         product.out.type == ElementType::kFloat32 && product.transposed_out.data == nullptr;
}

void RunTile(const TiledProduct& product, const Tile& tile, Gemm& gemm, float* sums, float* spare) {
  if (product.symmetric && tile.row == tile.col) {
    MultiplyDiagonalTile(product, tile, gemm, sums);
  } else if (IsPlain(product)) {
    MultiplyTile(product, tile, gemm, FloatsAt(product.out, tile), product.out.ld);
    return;
  } else {
    MultiplyTile(product, tile, gemm, sums, tile.cols);
  }
  FinishTile(product, tile, sums, spare);
}

}  // namespace

TileRunner::TileRunner(ThreadPool& pool, bool native_bf16) : pool_(pool) {
  workers_.reserve(pool.threads());
  for (int i = 0; i < pool.threads(); ++i) {
    constexpr int64_t kBytes = 2 * kLargestTile * kLargestTile * sizeof(float);
    workers_.push_back({Gemm(native_bf16), AllocateAligned(kBytes)});
    if (pool.threads() > 1) {
      // A thread may get its first tile late: its memory is there from the start.
      std::memset(workers_.back().tiles.get(), 0, kBytes);
    }
  }
}

void TileRunner::Run(const TiledProduct& product, int64_t count) {
  const int64_t asked = product.symmetric ? sides_.symmetric : sides_.product;
  const int64_t side = asked != 0 ? asked : TileSide(product.left.type, product.symmetric);
  pool_.ParallelFor(count * TilesPerMatrix(product, side), [&](int64_t index, int worker) {
    auto* sums = reinterpret_cast<float*>(workers_[worker].tiles.get());
    RunTile(product, TileAt(product, side, index), workers_[worker].gemm, sums,
            sums + kLargestTile * kLargestTile);
  });
}

}  // namespace dmuon::kernels
