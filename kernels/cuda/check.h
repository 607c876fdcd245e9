// The one place where CUDA and cuBLAS errors become exceptions that name the call and where it is.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

namespace dmuon::kernels::cuda {

// Throws std::bad_alloc when memory is short, else std::runtime_error.
void Check(cudaError_t error, const char* call, const char* file, int line);
void Check(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace dmuon::kernels::cuda

#define DMUON_CUDA_CHECK(call) ::dmuon::kernels::cuda::Check((call), #call, __FILE__, __LINE__)
