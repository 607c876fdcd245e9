#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/elementwise.h"
#include "kernels/half_types.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kAdamWBlock = 8192;

// Returns whether everything written is finite.
bool RunBlock(const AdamWFactors& f, const AdamWRange& range, int64_t begin, int64_t end) {
  const float* __restrict gradient = range.gradient;
  const float* __restrict master = range.master;
  const float* __restrict exp_avg = range.exp_avg;
  const float* __restrict exp_avg_sq = range.exp_avg_sq;
  float* __restrict new_master = range.new_master;
  float* __restrict new_exp_avg = range.new_exp_avg;
  float* __restrict new_exp_avg_sq = range.new_exp_avg_sq;
  uint32_t not_finite = 0;
  for (int64_t i = begin; i < end; ++i) {
    const float g = f.gradient_factor * gradient[i];
    const float v1 = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    const float v2 = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    const float root = std::sqrt(v2) * f.root_correction + f.eps;
    const float p = f.decay * master[i] - f.step * v1 / root;
    new_exp_avg[i] = v1;
    new_exp_avg_sq[i] = v2;
    new_master[i] = p;
    not_finite |= NotFinite(v1) | NotFinite(v2) | NotFinite(p);
  }
  return not_finite == 0;
}

}  // namespace

bool RunAdamWStep(ThreadPool& pool, const AdamWValues& values, const AdamWRange& range) {
  const AdamWFactors factors = AdamWFactorsOf(values);
  const int64_t blocks = (range.count + kAdamWBlock - 1) / kAdamWBlock;
  std::atomic<bool> finite{true};
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kAdamWBlock;
    if (!RunBlock(factors, range, begin, std::min(begin + kAdamWBlock, range.count))) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite.load();
}

}  // namespace dmuon::kernels
