// The elementwise halves of the Muon and AdamW steps.
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/typed_access.cuh"

namespace dmuon::kernels::cuda {
namespace {

__global__ void MomentumKernel(MuonFactors f, bool nesterov, ElementType type, MuonMatrix matrix,
                               int64_t count, float* u, int* not_finite) {
  uint32_t bad = 0;
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    const float g = f.gradient * (f.gradient_factor * matrix.gradient[i]);
    const float sum = f.momentum * LoadElement(matrix.momentum, type, i) + g;
    StoreElement(matrix.new_momentum, type, i, sum);
    const float m = LoadElement(matrix.new_momentum, type, i);  // as stored
    u[i] = nesterov ? g + f.momentum * m : m;
    bad |= NotFinite(m);
  }
  if (bad != 0) {
    atomicOr(not_finite, 1);
  }
}

__global__ void NormalizeFactorsKernel(Normalize normalize, double eps, const double* squared_sum,
                                       NormalizeFactors* factors, int* not_finite) {
  const double norm = sqrt(*squared_sum);
  *factors = NormalizeFactorsOf(normalize, eps, norm);
  if (!(norm - norm == 0.0)) {
    atomicOr(not_finite, 1);
  }
}

__global__ void NormalizeKernel(Shape shape, const float* u, const NormalizeFactors* factors,
                                TypedPointer x) {
  const NormalizeFactors f = *factors;
  for (int64_t i = FirstIndex(); i < shape.count(); i += IndexStep()) {
    StoreElement(x.data, x.type, i, u[shape.MatrixIndex(i)] * f.prescale / f.divisor);
  }
}

__global__ void UpdateKernel(MuonFactors f, Shape shape, MuonMatrix matrix, const float* o,
                             int* not_finite) {
  uint32_t bad = 0;
  for (int64_t i = FirstIndex(); i < shape.count(); i += IndexStep()) {
    const float p = f.decay * matrix.master[i] - f.step * o[shape.XIndex(i)];
    matrix.new_master[i] = p;
    bad |= NotFinite(p);
  }
  if (bad != 0) {
    atomicOr(not_finite, 1);
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

}  // namespace

void LaunchMomentum(cudaStream_t stream, const MuonFactors& factors, const MuonOptions& options,
                    const MuonMatrix& matrix, int64_t count, float* u, int* not_finite) {
  MomentumKernel<<<GridFor(count), kThreads, 0, stream>>>(
      factors, options.nesterov, options.momentum_type, matrix, count, u, not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchNormalize(cudaStream_t stream, const NewtonSchulzOptions& options, const Shape& shape,
                     const float* u, const double* squared_sum, NormalizeFactors* factors,
                     TypedPointer x, int* not_finite) {
  NormalizeFactorsKernel<<<1, 1, 0, stream>>>(options.normalize, options.eps, squared_sum, factors,
                                              not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
  NormalizeKernel<<<GridFor(shape.count()), kThreads, 0, stream>>>(shape, u, factors, x);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchUpdate(cudaStream_t stream, const MuonFactors& factors, const Shape& shape,
                  const MuonMatrix& matrix, const float* o, int* not_finite) {
  UpdateKernel<<<GridFor(shape.count()), kThreads, 0, stream>>>(factors, shape, matrix, o,
                                                                not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

void LaunchAdamW(cudaStream_t stream, const AdamWFactors& factors, const AdamWRange& range,
                 int* not_finite) {
  AdamWKernel<<<GridFor(range.count), kThreads, 0, stream>>>(factors, range, not_finite);
  DMUON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace dmuon::kernels::cuda
