#include "kernels/cpu/micro_kernel.h"

namespace dmuon::kernels {

bool RunMicroKernel(int64_t, int64_t, int64_t, const float*, int64_t, const float*, int64_t, float*,
                    int64_t) {
  return false;
}

bool HasMicroKernels() { return false; }

std::string MicroKernelLibrary() { return ""; }

}  // namespace dmuon::kernels
