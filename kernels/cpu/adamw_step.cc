#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/vector_clones.h"
#include "kernels/half_types.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kAdamWBlock = 16384;

// The results of a run, before they are stored.
struct AdamWRun {
  alignas(64) float master[kRunElements];
  alignas(64) float exp_avg[kRunElements];
  alignas(64) float exp_avg_sq[kRunElements];
};

// Returns whether everything in the run is finite. The factors come by value: constants of the
// loop.
DMUON_VECTOR_CLONES bool ComputeRun(const AdamWFactors f, const AdamWRange& range, int64_t begin,
                                    int64_t size, AdamWRun& run) {
  const float* gradient = range.gradient + begin;
  const float* master = range.master + begin;
  const float* exp_avg = range.exp_avg + begin;
  const float* exp_avg_sq = range.exp_avg_sq + begin;
  uint32_t not_finite = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float g = f.gradient_factor * gradient[i];
    const float v1 = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    const float v2 = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    const float root = std::sqrt(v2) * f.root_correction + f.eps;
    const float p = f.decay * master[i] - f.step * v1 / root;
    run.exp_avg[i] = v1;
    run.exp_avg_sq[i] = v2;
    run.master[i] = p;
    not_finite |= NotFinite(v1) | NotFinite(v2) | NotFinite(p);
  }
  return not_finite == 0;
}

// Returns whether everything written is finite.
bool RunBlock(const AdamWFactors& factors, const AdamWRange& range, int64_t begin, int64_t end) {
  const bool streamed = range.count * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  bool finite = true;
  AdamWRun run;  // NOLINT(cppcoreguidelines-pro-type-member-init): what is read was written before
  for (; begin < end; begin += kRunElements) {
    const int64_t size = std::min(kRunElements, end - begin);
    const int64_t bytes = size * static_cast<int64_t>(sizeof(float));
    finite &= ComputeRun(factors, range, begin, size, run);
    StoreRun(streamed, run.master, bytes, range.new_master + begin);
    StoreRun(streamed, run.exp_avg, bytes, range.new_exp_avg + begin);
    StoreRun(streamed, run.exp_avg_sq, bytes, range.new_exp_avg_sq + begin);
  }
  FinishStores();
  return finite;
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
