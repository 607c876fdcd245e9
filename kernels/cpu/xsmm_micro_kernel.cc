#include <libxsmm.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/micro_kernel.h"

namespace dmuon::kernels {
namespace {

// What one call multiplies, and the steps in which it goes through the inner dimension: the sums
// and what they need of the operands stay in the first-level cache.
constexpr int64_t kSide = 32;
constexpr int64_t kDepthStep = 64;
// The piece of the inner dimension that all blocks of a tile go through before the next: what a
// tile needs of it stays in the second-level cache. A multiple of kDepthStep. All measured
// (kernels/README.md).
constexpr int64_t kDepthPiece = 256;

// libxsmm's matrices are column-major: a row-major product C = L R is its C^T = R^T L^T, so that
// its first operand is our right one.
struct Call {
  libxsmm_blasint rows;
  libxsmm_blasint cols;
  libxsmm_blasint left_ld;
  libxsmm_blasint right_ld;
  libxsmm_blasint c_ld;
};

// Multiplies `steps` steps of `depth` and adds them up, onto c if `beta` is 1.
bool RunSteps(Call call, int64_t depth, int64_t steps, const float* left, const float* right,
              float beta, float* c) {
  constexpr float kAlpha = 1.0F;
  const int64_t right_stride = depth * call.right_ld * static_cast<int64_t>(sizeof(float));
  if (right_stride > std::numeric_limits<libxsmm_blasint>::max()) {
    return false;
  }
  const libxsmm_smmfunction_reducebatch_strd kernel = libxsmm_smmdispatch_reducebatch_strd(
      call.cols, call.rows, static_cast<libxsmm_blasint>(depth),
      static_cast<libxsmm_blasint>(right_stride),
      static_cast<libxsmm_blasint>(depth * static_cast<int64_t>(sizeof(float))), &call.right_ld,
      &call.left_ld, &call.c_ld, &kAlpha, &beta, nullptr, nullptr);
  if (kernel == nullptr) {
    return false;
  }
  const auto count = static_cast<unsigned long long>(steps);
  kernel(right, left, c, &count);
  return true;
}

// One block of c over a piece of the inner dimension.
bool RunBlock(const Call& call, int64_t depth, const float* left, const float* right, bool add,
              float* c) {
  const int64_t steps = depth / kDepthStep;
  const int64_t done = steps * kDepthStep;
  if (steps > 0 && !RunSteps(call, kDepthStep, steps, left, right, add ? 1.0F : 0.0F, c)) {
    return false;
  }
  return done == depth || RunSteps(call, depth - done, 1, left + done, right + done * call.right_ld,
                                   add || steps > 0 ? 1.0F : 0.0F, c);
}

}  // namespace

bool RunMicroKernel(int64_t m, int64_t n, int64_t k, const float* left, int64_t left_ld,
                    const float* right, int64_t right_ld, float* c, int64_t c_ld) {
  constexpr int64_t kLargest = std::numeric_limits<libxsmm_blasint>::max();
  if (m < 1 || n < 1 || k < 1 || std::max({k, left_ld, right_ld, c_ld}) > kLargest) {
    return false;
  }
  Call call = {0, 0, static_cast<libxsmm_blasint>(left_ld), static_cast<libxsmm_blasint>(right_ld),
               static_cast<libxsmm_blasint>(c_ld)};
  for (int64_t d = 0; d < k; d += kDepthPiece) {
    for (int64_t i = 0; i < m; i += kSide) {
      for (int64_t j = 0; j < n; j += kSide) {
        call.rows = static_cast<libxsmm_blasint>(std::min(kSide, m - i));
        call.cols = static_cast<libxsmm_blasint>(std::min(kSide, n - j));
        if (!RunBlock(call, std::min(kDepthPiece, k - d), left + i * left_ld + d,
                      right + d * right_ld + j, d > 0, c + i * c_ld + j)) {
          return false;
        }
      }
    }
  }
  return true;
}

bool HasMicroKernels() {
  constexpr float kTwo = 2.0F;
  float product = 0.0F;
  return RunMicroKernel(1, 1, 1, &kTwo, 1, &kTwo, 1, &product, 1) && product == 4.0F;
}

std::string MicroKernelLibrary() {
  return "libxsmm " + std::to_string(LIBXSMM_VERSION_MAJOR) + "." +
         std::to_string(LIBXSMM_VERSION_MINOR);
}

}  // namespace dmuon::kernels
