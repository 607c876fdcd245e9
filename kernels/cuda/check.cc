#include "kernels/cuda/check.h"

#include <new>
#include <stdexcept>
#include <string>

namespace dmuon::kernels::cuda {
namespace {

[[noreturn]] void Fail(const std::string& cause, const char* call, const char* file, int line) {
  throw std::runtime_error("CUDA: " + cause + " in " + call + " at " + file + ":" +
                           std::to_string(line) +
                           "; run under compute-sanitizer to find the first bad access");
}

}  // namespace

void Check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // not sticky errors are reported once
  if (error == cudaErrorMemoryAllocation) {
    throw std::bad_alloc();
  }
  Fail(cudaGetErrorString(error), call, file, line);
}

void Check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return;
  }
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw std::bad_alloc();
  }
  Fail(cublasGetStatusString(status), call, file, line);
}

}  // namespace dmuon::kernels::cuda
