// Batched products over fixed-size tiles: the only shape of arithmetic that Newton-Schulz needs.
#pragma once

#include <cstdint>

#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// `count` row-major matrices, `stride` elements apart.
struct BatchedMatrix {
  float* data = nullptr;
  int64_t ld = 0;
  int64_t stride = 0;
};

// What is stored: fp32 as it is, or fp32 that holds values rounded to bf16 or fp16.
enum class Rounding { kNone, kBFloat16, kFloat16 };

float Round(Rounding rounding, float value);
void RoundAll(Rounding rounding, float* values, int64_t count);

// out = product_factor * (left * right) + addend_factor * addend, rounded. `out` must not be `left`
// or `right`; it may be `addend`.
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
  Rounding rounding = Rounding::kNone;
};

inline constexpr int64_t kTile = 256;

struct TileIndex {
  int64_t row = 0;
  int64_t col = 0;
};

constexpr int64_t TilesAlong(int64_t size) { return (size + kTile - 1) / kTile; }
constexpr int64_t TriangleCount(int64_t side) { return side * (side + 1) / 2; }

// The index-th tile (row >= col) of a lower triangle, counted along rows.
constexpr TileIndex TriangleTile(int64_t index) {
  int64_t row = 0;
  while (TriangleCount(row + 1) <= index) {
    ++row;
  }
  return {row, index - TriangleCount(row)};
}

// Runs the product for `count` matrices. `tiles` is scratch of threads * kTile * kTile floats.
void RunTiledProduct(ThreadPool& pool, const TiledProduct& product, int64_t count, float* tiles);

}  // namespace dmuon::kernels
