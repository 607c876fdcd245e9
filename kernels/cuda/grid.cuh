// Grids and blocks of kernels whose y is matrices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/layout.h"

namespace dmuon::kernels::cuda {

inline dim3 GridOf(int64_t x, int64_t matrices) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(matrices), 1};
}

// Of a block that moves one tile of kCopyTile x kCopyTile.
inline dim3 TileThreads() { return {kCopyTile, kCopyRows, 1}; }

}  // namespace dmuon::kernels::cuda
