#include "kernels/cuda/check.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/square_kernels.cuh"

namespace dmuon::kernels::cuda {
namespace {

dim3 TriangleGrid(int64_t side, int64_t count) {
  return GridOf(TriangleTiles(CeilDivide(side, kCopyTile)), count);
}

}  // namespace

void LaunchAddIdentity(cudaStream_t stream, const ArrayPointer& z, float a, int64_t side,
                       int64_t count, const ArrayPointer& out) {
  AddIdentityKernel<<<GridOf(GridFor(side * side), count), kThreads, 0, stream>>>(z, a, side, out);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchMirror(cudaStream_t stream, const ArrayPointer& array, int64_t side, int64_t count) {
  const dim3 grid = TriangleGrid(side, count);
  if (array.first.type == ElementType::kFloat32) {
    MirrorKernel<<<grid, TileThreads(), 0, stream>>>(BitsOf<uint32_t>(array), side);
  } else {
    MirrorKernel<<<grid, TileThreads(), 0, stream>>>(BitsOf<uint16_t>(array), side);
  }
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchCopyTriangle(cudaStream_t stream, const ArrayPointer& from, const ArrayPointer& to,
                        int64_t side, int64_t count) {
  const dim3 grid = TriangleGrid(side, count);
  if (from.first.type == ElementType::kFloat32) {
    CopyTriangleKernel<<<grid, TileThreads(), 0, stream>>>(BitsOf<uint32_t>(from),
                                                           BitsOf<uint32_t>(to), side);
  } else {
    CopyTriangleKernel<<<grid, TileThreads(), 0, stream>>>(BitsOf<uint16_t>(from),
                                                           BitsOf<uint16_t>(to), side);
  }
  DMUON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace dmuon::kernels::cuda
