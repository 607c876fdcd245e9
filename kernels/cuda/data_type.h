// Storage types as the CUDA libraries call them.
#pragma once

#include <library_types.h>

#include "kernels/options.h"

namespace dmuon::kernels::cuda {

inline cudaDataType_t CudaType(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return CUDA_R_32F;
    case ElementType::kBFloat16:
      return CUDA_R_16BF;
    case ElementType::kFloat16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

}  // namespace dmuon::kernels::cuda
