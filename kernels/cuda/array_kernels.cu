#include "kernels/cuda/array_kernels.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"

namespace dmuon::kernels::cuda {

void LaunchSquaredSum(cudaStream_t stream, const float* data, int64_t count, double* block_sums,
                      double* total) {
  const int64_t blocks = NormBlocks(count);
  if (blocks > 0) {
    const int64_t grid = blocks < kMaxBlocks ? blocks : kMaxBlocks;
    BlockSquaredSumKernel<<<grid, kNormThreads, 0, stream>>>(data, count, block_sums);
    DMUON_CUDA_CHECK(cudaGetLastError());
  }
  SumInOrderKernel<<<1, kThreads, 0, stream>>>(block_sums, blocks, total);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchConvert(cudaStream_t stream, TypedPointer from, TypedPointer to, int64_t count) {
  ConvertKernel<<<GridFor(count), kThreads, 0, stream>>>(from, to, count);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchAdd(cudaStream_t stream, float* left, const float* right, int64_t count) {
  AddKernel<<<GridFor(count), kThreads, 0, stream>>>(left, right, count);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchScale(cudaStream_t stream, float factor, const float* from, float* to, int64_t count) {
  ScaleKernel<<<GridFor(count), kThreads, 0, stream>>>(factor, from, to, count);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace dmuon::kernels::cuda
