// What symmetric matrices need besides products: the grid's x is tiles or elements, its y matrices.
#pragma once

#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/typed_access.cuh"

namespace dmuon::kernels::cuda {

// Bits of an element, whatever they mean.
template <typename Bits>
struct BitSquares {
  Bits* first = nullptr;
  int64_t stride = 0;
  int64_t ld = 0;

  __device__ Bits& At(int64_t row, int64_t col) const {
    return first[blockIdx.y * stride + row * ld + col];
  }
};

template <typename Bits>
BitSquares<Bits> BitsOf(const ArrayPointer& array) {
  return {static_cast<Bits*>(array.first.data), array.stride, array.ld};
}

__global__ void AddIdentityKernel(ArrayPointer z, float a, int64_t side, ArrayPointer out) {
  const int64_t begin = blockIdx.y * z.stride;
  for (int64_t i = FirstIndex(); i < side * side; i += IndexStep()) {
    const float value = LoadElement(z.first.data, z.first.type, begin + i);
    StoreElement(out.first.data, out.first.type, begin + i,
                 i % (side + 1) == 0 ? value + a : value);
  }
}

// One tile of the lower triangle per block. Reads of rows become writes of rows through shared
// memory, whose rows are one longer so that columns lie in different banks.
template <typename Bits>
__global__ void MirrorKernel(BitSquares<Bits> squares, int64_t side) {
  __shared__ Bits tile[kCopyTile][kCopyTile + 1];
  const Place at = TriangleTileAt(blockIdx.x);
  const int64_t top = at.row * kCopyTile;
  const int64_t left = at.col * kCopyTile;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    if (top + y < side && left + x < side) {
      tile[y][x] = squares.At(top + y, left + x);
    }
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    const int64_t row = left + y;
    const int64_t col = top + x;
    if (row < col && col < side) {
      squares.At(row, col) = tile[x][y];
    }
  }
}

template <typename Bits>
__global__ void CopyTriangleKernel(BitSquares<Bits> from, BitSquares<Bits> to, int64_t side) {
  const Place at = TriangleTileAt(blockIdx.x);
  const int64_t col = at.col * kCopyTile + threadIdx.x;
  for (int64_t y = threadIdx.y; y < kCopyTile; y += kCopyRows) {
    const int64_t row = at.row * kCopyTile + y;
    if (row < side && col <= row) {
      to.At(row, col) = from.At(row, col);
    }
  }
}

}  // namespace dmuon::kernels::cuda
