#include "kernels/cpu/tiled_product.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/half_types.h"

namespace dmuon::kernels {
namespace {

struct Tile {
  int64_t matrix = 0;
  int64_t row = 0;
  int64_t col = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

Tile TileAt(const TiledProduct& product, int64_t tiles_per_matrix, int64_t index) {
  const int64_t inside = index % tiles_per_matrix;
  const int64_t across = TilesAlong(product.cols);
  const TileIndex position =
      product.symmetric ? TriangleTile(inside) : TileIndex{inside / across, inside % across};
  Tile tile;
  tile.matrix = index / tiles_per_matrix;
  tile.row = position.row * kTile;
  tile.col = position.col * kTile;
  tile.rows = std::min(kTile, product.rows - tile.row);
  tile.cols = std::min(kTile, product.cols - tile.col);
  return tile;
}

template <Rounding kRounding>
float RoundAs(float value) {
  if constexpr (kRounding == Rounding::kBFloat16) {
    return RoundToBFloat16(value);
  } else if constexpr (kRounding == Rounding::kFloat16) {
    return FloatFromFloat16(Float16FromFloat(value));
  } else {
    return value;
  }
}

// Combines one row of the tile in place: sums[j] = round(factor * sums[j] + factor2 * addend[j]).
template <Rounding kRounding>
void CombineRow(const TiledProduct& product, const float* addend, int64_t cols, float* sums) {
  const float factor = product.product_factor;
  if (addend == nullptr) {
    for (int64_t j = 0; j < cols; ++j) {
      sums[j] = RoundAs<kRounding>(factor * sums[j]);
    }
    return;
  }
  const float addend_factor = product.addend_factor;
  for (int64_t j = 0; j < cols; ++j) {
    sums[j] = RoundAs<kRounding>(factor * sums[j] + addend_factor * addend[j]);
  }
}

void Combine(const TiledProduct& product, const float* addend, int64_t cols, float* sums) {
  switch (product.rounding) {
    case Rounding::kNone:
      CombineRow<Rounding::kNone>(product, addend, cols, sums);
      return;
    case Rounding::kBFloat16:
      CombineRow<Rounding::kBFloat16>(product, addend, cols, sums);
      return;
    case Rounding::kFloat16:
      CombineRow<Rounding::kFloat16>(product, addend, cols, sums);
      return;
  }
}

// Writes a tile of the lower triangle and its mirror image. Of a tile on the diagonal only the
// lower half counts, so that the result is exactly symmetric.
void StoreSymmetric(const Tile& tile, const float* sums, float* out, int64_t ld) {
  const bool diagonal = tile.row == tile.col;
  for (int64_t i = 0; i < tile.rows; ++i) {
    const int64_t cols = diagonal ? i + 1 : tile.cols;
    std::copy_n(sums + i * kTile, cols, out + (tile.row + i) * ld + tile.col);
  }
  const int64_t first = diagonal ? 1 : 0;
  for (int64_t j = 0; j < tile.cols; ++j) {
    float* mirrored = out + (tile.col + j) * ld + tile.row;
    for (int64_t i = diagonal ? j + first : 0; i < tile.rows; ++i) {
      mirrored[i] = sums[i * kTile + j];
    }
  }
}

void StoreGeneral(const Tile& tile, const float* sums, float* out, int64_t ld) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    std::copy_n(sums + i * kTile, tile.cols, out + (tile.row + i) * ld + tile.col);
  }
}

void RunTile(const TiledProduct& product, const Tile& tile, float* sums) {
  const BatchedMatrix& left = product.left;
  const BatchedMatrix& right = product.right;
  const float* rows = left.data + tile.matrix * left.stride + tile.row * left.ld;
  const float* cols = right.data + tile.matrix * right.stride +
                      (product.right_transposed ? tile.col * right.ld : tile.col);
  Gemm(tile.rows, tile.cols, product.depth, {rows, left.ld, false},
       {cols, right.ld, product.right_transposed}, sums, kTile);
  const BatchedMatrix& addend = product.addend;
  const float* addend_row = nullptr;
  for (int64_t i = 0; i < tile.rows; ++i) {
    if (addend.data != nullptr) {
      addend_row =
          addend.data + tile.matrix * addend.stride + (tile.row + i) * addend.ld + tile.col;
    }
    Combine(product, addend_row, tile.cols, sums + i * kTile);
  }
  float* out = product.out.data + tile.matrix * product.out.stride;
  if (product.symmetric) {
    StoreSymmetric(tile, sums, out, product.out.ld);
  } else {
    StoreGeneral(tile, sums, out, product.out.ld);
  }
}

}  // namespace

float Round(Rounding rounding, float value) {
  switch (rounding) {
    case Rounding::kNone:
      return value;
    case Rounding::kBFloat16:
      return RoundAs<Rounding::kBFloat16>(value);
    case Rounding::kFloat16:
      return RoundAs<Rounding::kFloat16>(value);
  }
  return value;
}

void RoundAll(Rounding rounding, float* values, int64_t count) {
  if (rounding == Rounding::kBFloat16) {
    std::transform(values, values + count, values, RoundAs<Rounding::kBFloat16>);
  } else if (rounding == Rounding::kFloat16) {
    std::transform(values, values + count, values, RoundAs<Rounding::kFloat16>);
  }
}

void RunTiledProduct(ThreadPool& pool, const TiledProduct& product, int64_t count, float* tiles) {
  const int64_t tiles_per_matrix = product.symmetric
                                       ? TriangleCount(TilesAlong(product.rows))
                                       : TilesAlong(product.rows) * TilesAlong(product.cols);
  pool.ParallelFor(count * tiles_per_matrix, [&](int64_t index, int worker) {
    RunTile(product, TileAt(product, tiles_per_matrix, index), tiles + worker * kTile * kTile);
  });
}

}  // namespace dmuon::kernels
