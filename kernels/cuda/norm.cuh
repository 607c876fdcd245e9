// Sums of squares in fp64, in the one order that every norm uses.
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"

namespace dmuon::kernels::cuda {

// The sum of `value` over a block of kNormThreads, as a fixed tree; right in thread 0.
inline __device__ double BlockSum(double value) {
  __shared__ double sums[kNormThreads];
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = value;
  __syncthreads();
  for (int half = kNormThreads / 2; half > 0; half /= 2) {
    if (thread < half) {
      sums[thread] += sums[thread + half];
    }
    __syncthreads();
  }
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

// The sum of `count` values in order, by a block of kThreads that fetches them together; right in
// thread 0.
inline __device__ double SumInOrder(const double* values, int64_t count) {
  __shared__ double fetched[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0.0;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    if (begin + thread < count) {
      fetched[thread] = values[begin + thread];
    }
    __syncthreads();
    const int64_t end = count - begin < kThreads ? count - begin : kThreads;
    for (int64_t i = 0; thread == 0 && i < end; ++i) {
      sum += fetched[i];
    }
    __syncthreads();
  }
  return sum;
}

}  // namespace dmuon::kernels::cuda
