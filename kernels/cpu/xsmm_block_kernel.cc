#include <libxsmm.h>

#include <limits>

#include "kernels/cpu/block_kernel.h"

namespace dmuon::kernels {
namespace {

using Code = libxsmm_smmfunction_reducebatch_strd;

// libxsmm's matrices are column-major: a row-major product C = L R is its C^T = R^T L^T, so that
// its first operand is our right one.
Code Generate(int64_t left_stride, float beta) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  constexpr auto kSide = static_cast<libxsmm_blasint>(kBlockSide);
  constexpr float kAlpha = 1.0F;
  if (left_stride * kBytes > std::numeric_limits<libxsmm_blasint>::max()) {
    return nullptr;
  }
  return libxsmm_smmdispatch_reducebatch_strd(
      kSide, kSide, kSide, static_cast<libxsmm_blasint>(kBlockElements * kBytes),
      static_cast<libxsmm_blasint>(left_stride * kBytes), &kSide, &kSide, &kSide, &kAlpha, &beta,
      nullptr, nullptr);
}

}  // namespace

GeneratedBlockKernel GenerateBlockKernel(int64_t left_stride) {
  const GeneratedBlockKernel kernel = {reinterpret_cast<void (*)()>(Generate(left_stride, 0.0F)),
                                       reinterpret_cast<void (*)()>(Generate(left_stride, 1.0F))};
  return kernel.first != nullptr && kernel.next != nullptr ? kernel : GeneratedBlockKernel{};
}

void RunGenerated(void (*code)(), const float* left, const float* right, int64_t count, float* c) {
  const auto blocks = static_cast<unsigned long long>(count);
  reinterpret_cast<Code>(code)(right, left, c, &blocks);
}

}  // namespace dmuon::kernels
