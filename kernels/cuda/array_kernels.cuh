// Norms, conversions and sums of arrays.
#pragma once

#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/typed_access.cuh"

namespace dmuon::kernels::cuda {

__global__ void BlockSquaredSumKernel(const float* data, int64_t count, double* block_sums) {
  for (int64_t block = blockIdx.x; block < NormBlocks(count); block += gridDim.x) {
    const Range range = NormBlockRange(block, count);
    double sum = 0.0;
    for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kNormThreads) {
      const double value = data[i];
      sum += value * value;
    }
    sum = BlockSum(sum);
    if (threadIdx.x == 0) {
      block_sums[block] = sum;
    }
  }
}

// In order, as the contract of the norm says.
__global__ void SumInOrderKernel(const double* block_sums, int64_t blocks, double* total) {
  const double sum = SumInOrder(block_sums, blocks);
  if (threadIdx.x == 0) {
    *total = sum;
  }
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

}  // namespace dmuon::kernels::cuda
