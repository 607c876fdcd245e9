// Batched products over fixed-size tiles: the only shape of arithmetic that Newton-Schulz needs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/workspace.h"
#include "kernels/options.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// Row-major matrices of one storage type, `stride` elements apart.
struct BatchedMatrix {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t ld = 0;
  int64_t stride = 0;
};

// out = product_factor * (left * right) + addend_factor * addend in fp32, rounded once to out's
// type. `out` must not be `left` or `right`; it may be `addend`.
struct TiledProduct {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  BatchedMatrix left;
  BatchedMatrix right;
  bool right_transposed = false;
  bool symmetric = false;  // out is known to be symmetric: one triangle is computed, then mirrored
  float product_factor = 1.0F;
  BatchedMatrix addend;  // data may be null: no addend
  float addend_factor = 0.0F;
  BatchedMatrix out;
  BatchedMatrix transposed_out;  // fp32, as out; data may be null: not wanted
};

inline constexpr int64_t kLargestTile = 256;
static_assert(kLargestTile <= Gemm::kMaxSide);

// The side of a product's tiles. Small tiles follow a triangle's diagonal closely and stay in the
// caches; large bf16 ones copy (or, emulated, convert) their operands less often inside oneDNN.
// Measured (kernels/README.md); depends on nothing but the product.
constexpr int64_t TileSide(ElementType operands, bool symmetric) {
  if (operands == ElementType::kFloat32) {
    return symmetric ? 64 : 128;
  }
  return symmetric ? 128 : kLargestTile;
}

// Sides of tiles that were asked for, up to kLargestTile; 0: TileSide's.
struct TileSides {
  int64_t symmetric = 0;
  int64_t product = 0;
};

struct TileIndex {
  int64_t row = 0;
  int64_t col = 0;
};

constexpr int64_t TilesAlong(int64_t size, int64_t side) { return (size + side - 1) / side; }
constexpr int64_t TriangleCount(int64_t side) { return side * (side + 1) / 2; }

// The index-th tile (row >= col) of a lower triangle, counted along rows.
constexpr TileIndex TriangleTile(int64_t index) {
  int64_t row = 0;
  while (TriangleCount(row + 1) <= index) {
    ++row;
  }
  return {row, index - TriangleCount(row)};
}

// Runs products on a pool's threads. The bits of a matrix do not depend on the number of threads,
// on the batch or on its place there.
class TileRunner {
 public:
  // `native_bf16`: bf16 products in hardware.
  TileRunner(ThreadPool& pool, bool native_bf16);

  ThreadPool& pool() const { return pool_; }
  // For the products that follow.
  void UseTiles(const TileSides& sides) { sides_ = sides; }
  void Run(const TiledProduct& product, int64_t count);

 private:
  struct Worker {
    Gemm gemm;
    AlignedBytes tiles;  // two of kLargestTile x kLargestTile floats
  };

  ThreadPool& pool_;
  TileSides sides_;
  std::vector<Worker> workers_;
};

}  // namespace dmuon::kernels
