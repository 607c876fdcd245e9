// fp32 matrices in square blocks, the layout in which the block kernel multiplies them.
#pragma once

#include <cstdint>

namespace dmuon::kernels {

inline constexpr int64_t kBlockSide = 32;
inline constexpr int64_t kBlockElements = kBlockSide * kBlockSide;

constexpr int64_t BlocksAlong(int64_t size) { return (size + kBlockSide - 1) / kBlockSide; }

// `count` equal matrices. A block is row-major and contiguous (4 KB); the blocks of one block
// column follow each other from the top: a panel. Elements beyond the matrix are zero, and stay so
// in products. The distance of panels is an odd number of blocks, since multiples of the distance
// at which addresses meet in one cache set would make a block row evict itself.
struct PanelMatrix {
  float* data = nullptr;  // null: none
  int64_t block_rows = 0;
  int64_t block_cols = 0;

  constexpr int64_t panel_stride() const { return (block_rows | 1) * kBlockElements; }
  constexpr int64_t stride() const { return block_cols * panel_stride(); }
  // In elements, from the start of the first matrix.
  constexpr int64_t Offset(int64_t matrix, int64_t row, int64_t col) const {
    return matrix * stride() + col * panel_stride() + row * kBlockElements;
  }
  float* Block(int64_t matrix, int64_t row, int64_t col) const {
    return data + Offset(matrix, row, col);
  }
};

constexpr PanelMatrix PanelShape(int64_t rows, int64_t cols) {
  return {nullptr, BlocksAlong(rows), BlocksAlong(cols)};
}

}  // namespace dmuon::kernels
