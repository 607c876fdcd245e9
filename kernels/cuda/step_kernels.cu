#include "kernels/cuda/check.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_kernels.cuh"

namespace dmuon::kernels::cuda {

void LaunchMomentum(cudaStream_t stream, const StepOfMatrices& step, const MuonOptions& options,
                    int64_t elements, float* u, int64_t stride, double* block_sums) {
  MomentumKernel<<<GridOf(NormBlocks(elements), step.count), kNormThreads, 0, stream>>>(
      step, options.nesterov, options.momentum_type, elements, u, stride, block_sums);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchNormalize(cudaStream_t stream, const StepOfMatrices& step,
                     const NewtonSchulzOptions& options, const Shape& shape, const float* u,
                     int64_t stride, const double* block_sums, NormalizeFactors* normalizers,
                     const ArrayPointer& x) {
  NormalizersKernel<<<GridOf(step.count, 1), kThreads, 0, stream>>>(
      options.normalize, options.eps, block_sums, NormBlocks(shape.count()), normalizers,
      step.not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
  const int64_t tiles = CopyTiles(shape.padded_m(), shape.padded_n());
  NormalizeKernel<<<GridOf(tiles, step.count), TileThreads(), 0, stream>>>(shape, u, stride,
                                                                           normalizers, x);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchUpdate(cudaStream_t stream, const StepOfMatrices& step, const Shape& shape,
                  const ArrayPointer& o) {
  const int64_t tiles = CopyTiles(shape.rows, shape.cols);
  UpdateKernel<<<GridOf(tiles, step.count), TileThreads(), 0, stream>>>(step, shape, o);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchAdamW(cudaStream_t stream, const AdamWFactors& factors, const AdamWRange& range,
                 int* not_finite) {
  AdamWKernel<<<GridFor(range.count), kThreads, 0, stream>>>(factors, range, not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace dmuon::kernels::cuda
