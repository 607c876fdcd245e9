// What kernels are given besides sizes. Free of CUDA.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels::cuda {

// Device memory of elements of one type.
struct TypedPointer {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
};

// Row-major arrays, `stride` elements apart.
struct ArrayPointer {
  TypedPointer first;
  int64_t stride = 0;
  int64_t ld = 0;
};

// A step of `count` matrices: values, matrices[count] and not_finite[count] are device memory.
struct StepOfMatrices {
  const MuonFactors* factors = nullptr;
  const MuonMatrix* matrices = nullptr;
  int* not_finite = nullptr;
  int64_t count = 0;
};

}  // namespace dmuon::kernels::cuda
