// Elements of a storage type on the device, read and written as fp32.
#pragma once

#include <cstdint>

#include "kernels/half_types.h"
#include "kernels/options.h"

namespace dmuon::kernels::cuda {

inline __device__ float LoadElement(const void* data, ElementType type, int64_t i) {
  switch (type) {
    case ElementType::kBFloat16:
      return FloatFromBFloat16(static_cast<const uint16_t*>(data)[i]);
    case ElementType::kFloat16:
      return FloatFromFloat16(static_cast<const uint16_t*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

inline __device__ void StoreElement(void* data, ElementType type, int64_t i, float value) {
  switch (type) {
    case ElementType::kBFloat16:
      static_cast<uint16_t*>(data)[i] = BFloat16FromFloat(value);
      return;
    case ElementType::kFloat16:
      static_cast<uint16_t*>(data)[i] = Float16FromFloat(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

// A grid-stride loop: the first index and the step of this thread.
inline __device__ int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline __device__ int64_t IndexStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace dmuon::kernels::cuda
