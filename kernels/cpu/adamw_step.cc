#include <algorithm>
#include <atomic>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector_clones.h"
#include "kernels/cpu/vector_stream.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kAdamWBlock = 16384;

// One element or eight, at `i`. The factors are constants of the loop.
template <bool kStreamed, typename T>
DMUON_ALWAYS_INLINE void Update(const AdamWFactors& f, const AdamWRange& range, int64_t i,
                                typename FlagsFor<T>::Type& not_finite) {
  T gradient;
  T master;
  T exp_avg;
  T exp_avg_sq;
  T root;
  Load(range.gradient + i, gradient);
  Load(range.master + i, master);
  Load(range.exp_avg + i, exp_avg);
  Load(range.exp_avg_sq + i, exp_avg_sq);
  const T g = f.gradient_factor * gradient;
  const T v1 = f.beta1 * exp_avg + f.one_minus_beta1 * g;
  const T v2 = f.beta2 * exp_avg_sq + f.one_minus_beta2 * g * g;
  SquareRoot(v2, root);
  const T p = f.decay * master - f.step * v1 / (root * f.root_correction + f.eps);
  Store<kStreamed>(v1, range.new_exp_avg + i);
  Store<kStreamed>(v2, range.new_exp_avg_sq + i);
  Store<kStreamed>(p, range.new_master + i);
  AddNotFinite(v1, not_finite);
  AddNotFinite(v2, not_finite);
  AddNotFinite(p, not_finite);
}

template <bool kStreamed>
DMUON_ALWAYS_INLINE bool UpdateRange(const AdamWFactors f, const AdamWRange range, int64_t begin,
                                     int64_t end) {
  WordVector vector_flags{};
  uint32_t flags = 0;
  int64_t i = begin;
  for (; i + kVector <= end; i += kVector) {
    Update<kStreamed, FloatVector>(f, range, i, vector_flags);
  }
  for (; i < end; ++i) {
    Update<false, float>(f, range, i, flags);
  }
  return !AnySet(vector_flags) && !AnySet(flags);
}

DMUON_VECTOR_CLONES bool UpdateCached(const AdamWFactors& f, const AdamWRange& range, int64_t begin,
                                      int64_t end) {
  return UpdateRange<false>(f, range, begin, end);
}

DMUON_VECTOR_CLONES bool UpdateStreamed(const AdamWFactors& f, const AdamWRange& range,
                                        int64_t begin, int64_t end) {
  return UpdateRange<true>(f, range, begin, end);
}

// Returns whether everything written is finite.
bool RunBlock(const AdamWFactors& factors, const AdamWRange& range, int64_t begin, int64_t end) {
  const bool streamed = range.count * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes &&
                        CanStream(range.new_master + begin) &&
                        CanStream(range.new_exp_avg + begin) &&
                        CanStream(range.new_exp_avg_sq + begin);
  const bool finite = streamed ? UpdateStreamed(factors, range, begin, end)
                               : UpdateCached(factors, range, begin, end);
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
