// The backend's own kernels, as functions that queue them on a stream. Pointers are device memory;
// `not_finite` is an int that is set to 1 when something written is not finite, and never cleared.
// Each output element is computed by one thread in a fixed order: deterministic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/layout.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels::cuda {

// Device memory of elements of one type.
struct TypedPointer {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
};

// u and new_momentum of one matrix of `count` elements.
void LaunchMomentum(cudaStream_t stream, const MuonFactors& factors, const MuonOptions& options,
                    const MuonMatrix& matrix, int64_t count, float* u, int* not_finite);

// total[0] = sum of squares in fp64; `block_sums` is scratch of NormBlocks(count).
void LaunchSquaredSum(cudaStream_t stream, const float* data, int64_t count, double* block_sums,
                      double* total);

// x = u / |u|, transposed if u is higher than wide. `factors` is scratch for one.
void LaunchNormalize(cudaStream_t stream, const NewtonSchulzOptions& options, const Shape& shape,
                     const float* u, const double* squared_sum, NormalizeFactors* factors,
                     TypedPointer x, int* not_finite);

// new_master = decay * master - step * o, where o is laid out like X.
void LaunchUpdate(cudaStream_t stream, const MuonFactors& factors, const Shape& shape,
                  const MuonMatrix& matrix, const float* o, int* not_finite);

void LaunchAdamW(cudaStream_t stream, const AdamWFactors& factors, const AdamWRange& range,
                 int* not_finite);

// to[i] = from[i], rounded to nearest even; either may be any type.
void LaunchConvert(cudaStream_t stream, TypedPointer from, TypedPointer to, int64_t count);

// left[i] += right[i]
void LaunchAdd(cudaStream_t stream, float* left, const float* right, int64_t count);

// to[i] = factor * from[i]
void LaunchScale(cudaStream_t stream, float factor, const float* from, float* to, int64_t count);

// out = z + a I, m x m
void LaunchAddIdentity(cudaStream_t stream, TypedPointer z, float a, int64_t m, TypedPointer out);

}  // namespace dmuon::kernels::cuda
