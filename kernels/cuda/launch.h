// The backend's own kernels, as functions that queue them on a stream. Pointers are device memory;
// `not_finite` holds an int per matrix that is set to 1 when something written is not finite, and
// never cleared. Each output element is computed by one thread in a fixed order: deterministic. All
// may be captured into a graph; what changes from step to step they read from device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/layout.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels::cuda {

// u (contiguous, `stride` apart) and new_momentum of `elements` each; block_sums[NormBlocks] of
// each matrix: fp64 sums of squares of u.
void LaunchMomentum(cudaStream_t stream, const StepOfMatrices& step, const MuonOptions& options,
                    int64_t elements, float* u, int64_t stride, double* block_sums);

// x = u / |u|, transposed if u is higher than wide, padded with zeros. `normalizers` is scratch for
// one per matrix.
void LaunchNormalize(cudaStream_t stream, const StepOfMatrices& step,
                     const NewtonSchulzOptions& options, const Shape& shape, const float* u,
                     int64_t stride, const double* block_sums, NormalizeFactors* normalizers,
                     const ArrayPointer& x);

// new_master = decay * master - step * o, where o is laid out like X, in fp32.
void LaunchUpdate(cudaStream_t stream, const StepOfMatrices& step, const Shape& shape,
                  const ArrayPointer& o);

void LaunchAdamW(cudaStream_t stream, const AdamWFactors& factors, const AdamWRange& range,
                 int* not_finite);

// total[0] = sum of squares in fp64; `block_sums` is scratch of NormBlocks(count).
void LaunchSquaredSum(cudaStream_t stream, const float* data, int64_t count, double* block_sums,
                      double* total);

// to[i] = from[i], rounded to nearest even; either may be any type.
void LaunchConvert(cudaStream_t stream, TypedPointer from, TypedPointer to, int64_t count);

// left[i] += right[i]
void LaunchAdd(cudaStream_t stream, float* left, const float* right, int64_t count);

// to[i] = factor * from[i]
void LaunchScale(cudaStream_t stream, float factor, const float* from, float* to, int64_t count);

// side x side arrays from here on, `count` of them.
// out = z + a I; same stride, ld = side
void LaunchAddIdentity(cudaStream_t stream, const ArrayPointer& z, float a, int64_t side,
                       int64_t count, const ArrayPointer& out);
// What is above the diagonal becomes what is below.
void LaunchMirror(cudaStream_t stream, const ArrayPointer& array, int64_t side, int64_t count);
// On and below the diagonal: to = from, of the same type.
void LaunchCopyTriangle(cudaStream_t stream, const ArrayPointer& from, const ArrayPointer& to,
                        int64_t side, int64_t count);

}  // namespace dmuon::kernels::cuda
