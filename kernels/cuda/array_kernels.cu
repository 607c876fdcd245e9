// Norms, conversions and sums of arrays.
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/typed_access.cuh"

namespace dmuon::kernels::cuda {
namespace {

// One block per norm block: each thread adds a fixed stride of elements, then a fixed tree.
__global__ void BlockSquaredSumKernel(const float* data, int64_t count, double* block_sums) {
  __shared__ double sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t block = blockIdx.x; block < NormBlocks(count); block += gridDim.x) {
    const Range range = NormBlockRange(block, count);
    double sum = 0.0;
    for (int64_t i = range.begin + thread; i < range.end; i += kThreads) {
      const double value = data[i];
      sum += value * value;
    }
    sums[thread] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (thread < half) {
        sums[thread] += sums[thread + half];
      }
      __syncthreads();
    }
    if (thread == 0) {
      block_sums[block] = sums[0];
    }
    __syncthreads();
  }
}

// In order, as the contract of the norm says.
__global__ void SumInOrderKernel(const double* block_sums, int64_t blocks, double* total) {
  double sum = 0.0;
  for (int64_t i = 0; i < blocks; ++i) {
    sum += block_sums[i];
  }
  *total = sum;
}

__global__ void ConvertKernel(TypedPointer from, TypedPointer to, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    StoreElement(to.data, to.type, i, LoadElement(from.data, from.type, i));
  }
}

__global__ void AddKernel(float* left, const float* right, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    left[i] += right[i];
  }
}

__global__ void ScaleKernel(float factor, const float* from, float* to, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    to[i] = factor * from[i];
  }
}

__global__ void AddIdentityKernel(TypedPointer z, float a, int64_t m, TypedPointer out) {
  for (int64_t i = FirstIndex(); i < m * m; i += IndexStep()) {
    const float value = LoadElement(z.data, z.type, i);
    StoreElement(out.data, out.type, i, i % (m + 1) == 0 ? value + a : value);
  }
}

}  // namespace

void LaunchSquaredSum(cudaStream_t stream, const float* data, int64_t count, double* block_sums,
                      double* total) {
  const int64_t blocks = NormBlocks(count);
  if (blocks > 0) {
    const int64_t grid = blocks < kMaxBlocks ? blocks : kMaxBlocks;
    BlockSquaredSumKernel<<<grid, kThreads, 0, stream>>>(data, count, block_sums);
    DMUON_CUDA_CHECK(cudaGetLastError());
  }
  SumInOrderKernel<<<1, 1, 0, stream>>>(block_sums, blocks, total);
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

void LaunchAddIdentity(cudaStream_t stream, TypedPointer z, float a, int64_t m, TypedPointer out) {
  AddIdentityKernel<<<GridFor(m * m), kThreads, 0, stream>>>(z, a, m, out);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace dmuon::kernels::cuda
