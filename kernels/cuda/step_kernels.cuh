// The elementwise halves of the Muon and AdamW steps. In the Muon step the grid's y is matrices,
// and values and pointers of the step come from device memory.
#pragma once

#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/typed_access.cuh"

namespace dmuon::kernels::cuda {

// One block per norm block: the sum is made of what was just computed.
__global__ void MomentumKernel(StepOfMatrices step, bool nesterov, ElementType type,
                               int64_t elements, float* u, int64_t stride, double* block_sums) {
  const MuonFactors f = *step.factors;
  const MuonMatrix matrix = step.matrices[blockIdx.y];
  const Range range = NormBlockRange(blockIdx.x, elements);
  float* out = u + blockIdx.y * stride;
  uint32_t bad = 0;
  double sum = 0.0;
  for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kNormThreads) {
    const float g = f.gradient * (f.gradient_factor * matrix.gradient[i]);
    const float momentum = f.momentum * LoadElement(matrix.momentum, type, i) + g;
    StoreElement(matrix.new_momentum, type, i, momentum);
    const float m = LoadElement(matrix.new_momentum, type, i);  // as stored
    const float value = nesterov ? g + f.momentum * m : m;
    out[i] = value;
    sum += static_cast<double>(value) * value;
    bad |= NotFinite(m);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    block_sums[blockIdx.y * NormBlocks(elements) + blockIdx.x] = sum;
  }
  if (bad != 0) {
    atomicOr(step.not_finite + blockIdx.y, 1);
  }
}

// One block per matrix.
__global__ void NormalizersKernel(Normalize normalize, double eps, const double* block_sums,
                                  int64_t blocks, NormalizeFactors* normalizers, int* not_finite) {
  const double squared_sum = SumInOrder(block_sums + blockIdx.x * blocks, blocks);
  if (threadIdx.x != 0) {
    return;
  }
  const double norm = sqrt(squared_sum);
  normalizers[blockIdx.x] = NormalizeFactorsOf(normalize, eps, norm);
  if (!(norm - norm == 0.0)) {
    atomicOr(not_finite + blockIdx.x, 1);
  }
}

// One tile of X per block; see MirrorKernel for the shared memory.
__global__ void NormalizeKernel(Shape shape, const float* u, int64_t stride,
                                const NormalizeFactors* normalizers, ArrayPointer x) {
  __shared__ float tile[kCopyTile][kCopyTile + 1];
  const NormalizeFactors f = normalizers[blockIdx.y];
  const Place at = CopyTileAt(blockIdx.x, shape.padded_n());
  const bool transposed = shape.transposed();
  const int64_t top = transposed ? at.col : at.row;  // of the tile in u
  const int64_t left = transposed ? at.row : at.col;
  const float* matrix = u + blockIdx.y * stride;
  const int column = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    const int64_t row = top + y;
    const int64_t col = left + column;
    const bool inside = row < shape.rows && col < shape.cols;
    tile[y][column] = inside ? matrix[row * shape.cols + col] * f.prescale / f.divisor : 0.0F;
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    const int64_t row = at.row + y;
    const int64_t col = at.col + column;
    if (row < shape.padded_m() && col < shape.padded_n()) {
      StoreElement(x.first.data, x.first.type, blockIdx.y * x.stride + row * x.ld + col,
                   transposed ? tile[column][y] : tile[y][column]);
    }
  }
}

// One tile of the matrix per block.
__global__ void UpdateKernel(StepOfMatrices step, Shape shape, ArrayPointer o) {
  __shared__ float tile[kCopyTile][kCopyTile + 1];
  const MuonFactors f = *step.factors;
  const MuonMatrix matrix = step.matrices[blockIdx.y];
  const Place at = CopyTileAt(blockIdx.x, shape.cols);
  const bool transposed = shape.transposed();
  const int64_t top = transposed ? at.col : at.row;  // of the tile in o
  const int64_t left = transposed ? at.row : at.col;
  const float* update = static_cast<const float*>(o.first.data) + blockIdx.y * o.stride;
  const int column = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    if (top + y < shape.m() && left + column < shape.n()) {
      tile[y][column] = update[(top + y) * o.ld + left + column];
    }
  }
  __syncthreads();
  uint32_t bad = 0;
  for (int y = static_cast<int>(threadIdx.y); y < kCopyTile; y += kCopyRows) {
    const int64_t row = at.row + y;
    const int64_t col = at.col + column;
    if (row < shape.rows && col < shape.cols) {
      const int64_t i = row * shape.cols + col;
      const float p =
          f.decay * matrix.master[i] - f.step * (transposed ? tile[column][y] : tile[y][column]);
      matrix.new_master[i] = p;
      bad |= NotFinite(p);
    }
  }
  if (bad != 0) {
    atomicOr(step.not_finite + blockIdx.y, 1);
  }
}

__global__ void AdamWKernel(AdamWFactors f, AdamWRange range, int* not_finite) {
  uint32_t bad = 0;
  for (int64_t i = FirstIndex(); i < range.count; i += IndexStep()) {
    const float g = f.gradient_factor * range.gradient[i];
    const float v1 = f.beta1 * range.exp_avg[i] + f.one_minus_beta1 * g;
    const float v2 = f.beta2 * range.exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    const float root = sqrtf(v2) * f.root_correction + f.eps;
    const float p = f.decay * range.master[i] - f.step * v1 / root;
    range.new_exp_avg[i] = v1;
    range.new_exp_avg_sq[i] = v2;
    range.new_master[i] = p;
    bad |= NotFinite(v1) | NotFinite(v2) | NotFinite(p);
  }
  if (bad != 0) {
    atomicOr(not_finite, 1);
  }
}

}  // namespace dmuon::kernels::cuda
